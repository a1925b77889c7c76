package tests

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writeSpec writes a spec of devices v/c=NAME, each with its changes in JSON.
func (n *node) writeSpec(devices map[string]string) {
	n.Helper()
	type device struct {
		Name  string          `json:"name"`
		Edits json.RawMessage `json:"containerEdits"`
	}
	var all []device
	for name, edits := range devices {
		all = append(all, device{name, json.RawMessage(edits)})
	}
	text, err := json.Marshal(map[string]any{"cdiVersion": "1.1.0", "kind": "v/c", "devices": all})
	if err != nil {
		n.Fatal(err)
	}
	n.write(n.path("cdi/spec.json"), string(text))
}

// named returns an editor that asks for devices by the field, or by an annotation.
func named(annotation bool, names ...string) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		if annotation {
			c.Annotations["cdi.k8s.io/plugin"] = strings.Join(names, ",")
			return
		}
		for _, name := range names {
			c.CDIDevices = append(c.CDIDevices, &runtimeapi.CDIDevice{Name: name})
		}
	}
}

// A driver's device is a node that only its own containers open, with files, variables and a group.
func TestDevicesOfCDI(t *testing.T) {
	p := newPod(t)
	node := filepath.Join(p.dir, "kmsg") // no container can open such a device
	if err := errors.Join(unix.Mknod(node, unix.S_IFCHR|0o660, int(unix.Mkdev(1, 11))), unix.Chown(node, 0, 44)); err != nil {
		t.Fatal(err)
	}
	p.write(p.path("driver/lib.so"), "library\n")
	p.writeSpec(map[string]string{
		"0": `{"deviceNodes": [{"path": "/dev/gpu/0", "hostPath": "` + node + `", "type": "c", "major": 1, "minor": 11}],
			"additionalGids": [44], "env": ["GPUS=0"]}`,
		"files": `{"mounts": [{"hostPath": "` + p.path("driver/lib.so") + `", "containerPath": "/usr/lib/gpu.so", "options": ["ro", "nosuid", "nodev", "rbind"]}]}`,
	})
	// A read fails where the kernel has overwritten the record; the next one has a later record.
	const script = `exec 3<>/dev/gpu/0 && echo "<7>written by a CDI test" >&3
		for i in 1 2 3 4 5 6 7 8 9; do dd bs=8192 count=1 <&3 2>/dev/null | grep -q , && break; done && echo read
		echo $GPUS; cat /usr/lib/gpu.so; (: >>/usr/lib/gpu.so) 2>/dev/null || echo read-only; id -G`
	for _, annotation := range []bool{false, true} {
		got := p.do(script, func(c *runtimeapi.ContainerConfig) {
			secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.RunAsGroup = number64(0), number64(8888)
				s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYSLOG"}}
			})(c)
			named(annotation, "v/c=0", "v/c=files")(c)
		})
		if want := "read\n0\nlibrary\nread-only\n8888 44\n"; got != want {
			t.Errorf("annotation %v: %q, want %q", annotation, got, want)
		}
	}
}

// What the runtime does not do, or does not find, is refused in one line with its name, and makes nothing on the host.
func TestDevicesOfCDIAreRefused(t *testing.T) {
	p := newPod(t)
	p.writeSpec(map[string]string{
		"hooked":  `{"env": ["A=1"], "hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook", "args": ["hook"]}]}`,
		"missing": `{"mounts": [{"hostPath": "` + p.path("missing") + `", "containerPath": "/x"}]}`,
		"other":   `{"deviceNodes": [{"path": "/dev/null", "type": "b", "major": 1, "minor": 3}]}`,
	})
	for name, want := range map[string]string{
		"v/c=hooked":  `CDI device "v/c=hooked": hook createContainer (/usr/bin/hook): not supported`,
		"v/c=missing": "find host path " + p.path("missing") + ": lstat " + p.path("missing") + ": no such file or directory",
		"v/c=other":   "find host path /dev/null: device c 1:3: its spec wants b 1:3",
		"v/c=none":    `CDI device "v/c=none": in no spec of ` + p.path("cdi"),
	} {
		config := p.script("true")
		named(false, name)(config)
		_, err := p.createContainer(config)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
