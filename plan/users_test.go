package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// decided plans the specification's pod with a configuration, an isolator of the pod and one of its first app, where
// they are not empty.
func decided(t *testing.T, config, podIsolator, appIsolator string, machine spec.Support) (*Pod, error) {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(example(t)), &doc); err != nil {
		t.Fatal(err)
	}
	pod := doc["pod"].(map[string]any)
	app := pod["apps"].([]any)[0].(map[string]any)
	app["app"] = doc["images"].(map[string]any)[app["image"].(map[string]any)["id"].(string)].(map[string]any)["app"]
	for isolator, of := range map[string]any{podIsolator: pod, appIsolator: app["app"]} {
		if name, value, ok := strings.Cut(isolator, " "); ok {
			of.(map[string]any)["isolators"] = []any{map[string]any{"name": name, "value": json.RawMessage(value)}}
		}
	}
	doc["stagerConfig"] = json.RawMessage(config)
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return Decide(m, machine, nil, nil)
}

func TestAPodHasTheUserNamespaceOfTheConfiguration(t *testing.T) {
	const privileged, host = `os/linux/privileged true`, `os/linux/namespaces {"user": "host"}`
	none := able
	none.UserNamespaces = false
	tests := []struct {
		name, more, pod, app string
		machine              spec.Support
		warning, err         string // with either, the pod has none
	}{
		{name: "plain", machine: able},
		{name: "a privileged app", app: privileged, machine: able, warning: "has os/linux/privileged"},
		{name: "a privileged app, refused", more: `, "requiredNamespaces": ["user"]`, app: privileged, machine: able, err: "has os/linux/privileged, and stagerConfig.requiredNamespaces has user"},
		{name: "the host's", pod: host, machine: able, warning: "os/linux/namespaces asks for the host's"},
		{name: "the host's, refused", more: `, "requiredNamespaces": ["user"]`, pod: host, machine: able, err: "user must not be the host's"},
		{name: "a power", more: `, "forbid": ["hostNamespaces"]`, pod: host, machine: able, err: `stagerConfig.forbid has "hostNamespaces"`},
		{name: "no kernel", machine: none, err: "stagerConfig.userNamespace: this stager's runtime, or the kernel, has no user namespaces"},
		{name: "libcontainer", more: `, "runtime": "libcontainer"`, machine: able, err: `stagerConfig.userNamespace: not with stagerConfig.runtime "libcontainer"`},
		{name: "too many for auto", more: `, "userNamespace": {"hostID": "auto", "size": 65537}`, machine: able, err: `stagerConfig.userNamespace: hostID "auto" has 65536 IDs, and size is 65537`},
		{name: "too many", more: `, "userNamespace": {"hostID": 4294967290, "size": 6}`, machine: able, err: "stagerConfig.userNamespace: 6 IDs from 4294967290 on end above 4294967294"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := `{"userNamespace": {"hostID": 1000}` + test.more + `}`
			if strings.Contains(test.more, "userNamespace") {
				config = "{" + strings.TrimPrefix(test.more, ", ") + "}"
			}
			pod, err := decided(t, config, test.pod, test.app, test.machine)
			if test.err != "" {
				wantError(t, err, test.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := &spec.UserNamespace{Path: names.UserNamespace, HostID: 1000, Size: 65536}
			if test.warning != "" {
				want = nil
				if all := strings.Join(pod.Warnings, "\n"); !strings.Contains(all, "the pod has the stager's user namespace: ") || !strings.Contains(all, test.warning) {
					t.Errorf("warnings %q", all)
				}
			}
			if diff := cmp.Diff(want, pod.UserNamespace) + cmp.Diff(want, pod.Apps[0].Spec.UserNamespace); diff != "" {
				t.Error(diff)
			}
			if _, open := pod.Sysctl["net.ipv4.ip_unprivileged_port_start"]; open != (want != nil) {
				t.Errorf("sysctls %v", pod.Sysctl)
			}
		})
	}
	// The name decides.
	auto := func(name string) uint32 {
		own, err := UserNamespace{autoID, blockSize}.of(name)
		if err != nil || own.HostID%blockSize != 0 || own.HostID < 1<<20 || own.HostID > 1<<31-blockSize {
			t.Errorf("auto: %d, %v", own.HostID, err)
		}
		return own.HostID
	}
	all := map[uint32]bool{}
	for i := range 1000 {
		all[auto(fmt.Sprint("pod-", i))] = true
	}
	if first := auto("pod-0"); !all[first] || len(all) < 950 {
		t.Errorf("1000 pods have %d blocks of IDs", len(all))
	}
	pod, err := decided(t, `{"userNamespace": {"hostID": "auto"}}`, "", "", able)
	if err != nil || pod.UserNamespace.HostID != auto(pod.Name) || pod.UserNamespace.Size != blockSize {
		t.Errorf("auto: %+v, %v", pod, err)
	}
	// The network of the host stays as it is, and what the pod asks for comes first.
	pod, err = decided(t, `{"userNamespace": {"hostID": 1000}}`, `os/linux/namespaces {"net": "host"}`, "", able)
	if err != nil || pod.UserNamespace == nil || len(pod.Sysctl) != 0 {
		t.Errorf("with the host's network: %+v, %v", pod, err)
	}
	pod, err = decided(t, `{"userNamespace": {"hostID": 1000}}`, `os/unix/sysctl {"net.ipv4.ip_unprivileged_port_start": "99"}`, "", able)
	if err != nil || pod.Sysctl["net.ipv4.ip_unprivileged_port_start"] != "99" {
		t.Errorf("with a sysctl: %+v, %v", pod, err)
	}
}
