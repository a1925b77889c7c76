package sandboxes

import (
	"strings"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/thread"
)

// A container of a sandbox whose namespaces are gone must not start in the host's.
func TestNamespaceThatIsGoneIsNotEntered(t *testing.T) {
	for name, r := range map[string]records.Sandbox{"all its own": {}, "of IPC": {HostNetwork: true}} {
		err := thread.New(func() error { return Enter(t.TempDir(), r) })
		if err == nil || !strings.Contains(err.Error(), "pins none") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := thread.New(func() error { return Enter(t.TempDir(), records.Sandbox{HostNetwork: true, HostIPC: true}) }); err != nil {
		t.Errorf("none its own: %v", err)
	}
}

func TestSysctlsOfTheMachineAreRefused(t *testing.T) {
	for _, test := range []struct {
		key     string
		sandbox records.Sandbox
		ok      bool
	}{
		{"net.core.somaxconn", records.Sandbox{}, true},
		{"net/core/somaxconn", records.Sandbox{}, true},
		{"net.core.somaxconn", records.Sandbox{HostNetwork: true}, false},
		{"kernel.shmmax", records.Sandbox{}, true},
		{"fs.mqueue.msg_max", records.Sandbox{HostIPC: true}, false},
		{"kernel.panic", records.Sandbox{}, false},
		{"net/../kernel/panic", records.Sandbox{}, false},
	} {
		test.sandbox.Sysctls = map[string]string{test.key: "1"}
		if err := CheckSysctls(test.sandbox); (err == nil) != test.ok {
			t.Errorf("%s of %+v: %v", test.key, test.sandbox, err)
		}
	}
}
