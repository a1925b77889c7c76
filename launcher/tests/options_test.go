package tests

import (
	"os"
	"path/filepath"
	"testing"
)

// The stager does what the options of run ask for.
func TestRunOptionsHaveTheirEffects(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.7 db\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		options      []string
		script, want string
	}{
		{
			[]string{"--read-only", "--tmpfs", "/scratch", "--tmpfs", "/own:mode=700"},
			`touch /x /etc/x 2>/dev/null; ls -d /x /etc/x 2>/dev/null; touch /scratch/x && stat -c %a /scratch /own`, "1777\n700\n",
		},
		{[]string{"--privileged"}, "mkdir /m; mount -t tmpfs none /m && echo mounted", "mounted\n"},
		{[]string{"--cap-drop", "MKNOD"}, "mkdir /m; mount -t tmpfs none /m 2>/dev/null || echo refused", "refused\n"},
		{[]string{"--net", "none", "--add-host", "db:192.0.2.7", "--add-host", "DB:2001:db8::1"}, "cat /etc/hosts | grep -i db", "192.0.2.7\tdb\n2001:db8::1\tdb\n"},
		{[]string{"--net", "host", "--add-host", "db:192.0.2.7"}, "grep db /etc/hosts", "192.0.2.7\tdb\n"},
		{[]string{"--volume", hosts + ":/etc/hosts:ro"}, "cat /etc/hosts", "192.0.2.7 db\n"},
	} {
		args := append([]string{"run", "--rm", "--entrypoint", "/bin/sh"}, tt.options...)
		r := b.Launcher(append(args, "kurma.io/stager/tests/busybox", "--", "-c", tt.script)...)
		if r.Code != 0 || r.Stdout != tt.want {
			t.Errorf("%q: %+v, want %q", tt.options, r, tt.want)
		}
	}
}
