package cgroups

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheCgroupOfAServiceIsFound(t *testing.T) {
	for name, tt := range map[string]struct{ memberships, want string }{
		"v2":             {"0::/system.slice/kurma-pod@web.service\n", "system.slice/kurma-pod@web.service"},
		"hybrid":         {"8:pids:/x\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n", "system.slice/a.service"},
		"v1":             {"8:pids:/\n1:name=systemd:/system.slice/a.service\n", "system.slice/a.service"},
		"v2 not in use":  {"1:name=systemd:/system.slice/a.service\n0::/\n", "system.slice/a.service"},
		"no service":     {"8:pids:/x\n0::/\n", ""},
		"no cgroup":      {"", ""},
		"colon in group": {"0::/system.slice/a:b.service\n", "system.slice/a:b.service"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cgroup")
			if err := os.WriteFile(file, []byte(tt.memberships), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := serviceOf(file)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
