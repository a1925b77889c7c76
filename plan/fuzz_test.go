package plan

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/manifest"
)

// FuzzDecide looks for manifests whose contents make the stager panic, or
// complain on several lines.
func FuzzDecide(f *testing.F) {
	example, err := os.ReadFile(filepath.Join("..", "manifest", "testdata", "example.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	with := func(old, new string) { f.Add([]byte(strings.Replace(string(example), old, new, 1))) }
	with(`"user": "0",`, `"user": "0", "isolators": [{"name": "resource/cpu", "value": {"limit": "1.5e3"}}, {"name": "os/linux/seccomp-remove-set", "value": {"set": ["a"], "errno": "EPERM"}}, {"name": "os/linux/capabilities-retain-set", "value": {"set": ["CAP_KILL"]}}],`)
	with(`"user": "0",`, `"user": "0", "mountPoints": [{"name": "a", "path": "/a"}], "environment": [{"name": "A", "value": "b"}],`)
	with(`"acVersion": "0.7.4",`, `"acVersion": "0.7.4", "volumes": [{"name": "a", "kind": "empty", "mode": "0700"}], "isolators": [{"name": "os/unix/sysctl", "value": {"net.a": "1"}}, {"name": "os/linux/namespaces", "value": {"net": "host"}}],`)
	with(`"stagerConfig": {}`, `"stagerConfig": {"log": {"maxSize": "10Mi"}, "gracePeriod": "1s"}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifest.Read(bytes.NewReader(data))
		if err == nil {
			_, err = Decide(m, able, nil, nil)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("error of several lines: %q", err)
		}
	})
}

// FuzzIsolator does so for a single isolator.
func FuzzIsolator(f *testing.F) {
	for _, row := range isolators() {
		for _, value := range []string{`{"set": ["CAP_KILL", "@appc.io/all"], "errno": "EPERM"}`, `{"default": true, "limit": "1Ki", "request": 1e2}`, `{"net": "host"}`, `5`, `"x"`, `true`} {
			f.Add(row.name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if !json.Valid([]byte(value)) || value == "" {
			return
		}
		list := listed(name, value, name, value)
		for _, n := range []int{1, 2} {
			if _, err := (Rows{}).applyAppIsolators(defaultConfig(), able, podIsolators{}, list[:n]); err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			_, _ = (Rows{}).applyPodIsolators(defaultConfig(), able, list[:n])
		}
	})
}
