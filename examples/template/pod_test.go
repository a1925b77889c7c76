package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// image is the manifest of the test's app, which has the stager's isolator.
const image = `{
	"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/template/test",
	"app": {
		"exec": ["/bin/busybox", "sleep", "1000"], "user": "0", "group": "0",
		"isolators": [{"name": "example.com/template/first-killed", "value": true}]
	}
}`

// machine is a launcher with its own state, whose stager is the image that build.sh has made. It needs root.
type machine struct {
	t    *testing.T
	args []string
}

func newMachine(t *testing.T, stagerConfig map[string]any) machine {
	t.Helper()
	top, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, cgroup := t.TempDir(), fmt.Sprintf("template-test-%d", os.Getpid())
	config, err := json.Marshal(map[string]any{
		"trustedKeys":         []string{filepath.Join(top, "out/stager.aci.pub")},
		"defaultStagerImage":  "example.com/template/stager",
		"defaultStagerConfig": stagerConfig,
		"parentCgroupName":    cgroup,
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kurmad.json"), config, 0o644)
	t.Cleanup(func() {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroup) // the pattern is right
		for _, group := range append(groups, "/sys/fs/cgroup/"+cgroup) {
			_ = os.Remove(group) // not in every hierarchy
		}
	})
	m := machine{t, []string{"bin/launcher", "--config", dir + "/kurmad.json", "--state", dir + "/state"}}
	m.launcher("image", "import", "out/stager.aci", m.app(dir))
	return m
}

// app makes an image whose root has busybox.
func (m machine) app(dir string) string {
	m.t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		m.t.Fatal("install Debian's busybox-static: ", err)
	}
	if err := os.MkdirAll(dir+"/root/bin", 0o755); err != nil {
		m.t.Fatal(err)
	}
	write(m.t, dir+"/root/bin/busybox", program, 0o755)
	write(m.t, dir+"/manifest", []byte(image), 0o644)
	m.run("bin/aci", "build", "--manifest", dir+"/manifest", "--root", dir+"/root", "-o", dir+"/app.aci")
	return dir + "/app.aci"
}

func (m machine) launcher(args ...string) string {
	m.t.Helper()
	return m.run(append(m.args, args...)...)
}

func (m machine) run(args ...string) string {
	m.t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(m.t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func write(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
}

// The pod of the built image has all that this stager adds.
func TestAPodRuns(t *testing.T) {
	m := newMachine(t, map[string]any{infoKey: "/run/product/info.json"})
	if out := m.launcher("validate", "example.com/template/test"); strings.Contains(out, infoKey) || !strings.Contains(out, firstKilled+" is undecided") {
		t.Errorf("validate does not know what build.sh names:\n%s", out)
	}
	m.launcher("run", "--detach", "--name", "try", "example.com/template/test")
	t.Cleanup(func() { m.launcher("rm", "--force", "try") })
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"key and step", []string{"exec", "try", "--", "/bin/busybox", "cat", "/run/product/info.json"}, `{"pod":"try","apps":["test"]}`},
		{"isolator", []string{"exec", "try", "--", "/bin/busybox", "cat", "/proc/self/oom_score_adj"}, "1000\n"},
		{"its fate", []string{"call", "try", "status", "--isolators", "test"}, `"fate": "enforced"`},
		{"call-in", []string{"call", "try", infoCallIn}, `"test"`},
	} {
		if out := m.launcher(test.args...); !strings.Contains(out, test.want) {
			t.Errorf("%s: %s, want %s", test.name, out, test.want)
		}
	}
}
