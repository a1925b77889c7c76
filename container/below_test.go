package container

import (
	"os"
	"path/filepath"
	"testing"
)

// The cgroups above the stager's, and those that the app makes, may have names like the container's.
func TestOnlyCgroupsBelowTheContainersCount(t *testing.T) {
	const pid = 42
	for _, test := range []struct{ name, path, process, want string }{
		{"the container's own", "/kurma/pod/apps/a", "", ""},
		{"one that the app has made", "/kurma/pod/apps/a/init.scope", "init.scope", "init.scope/"},
		{"another app's", "/kurma/pod/apps/ab", "", ""},
		{"below one of the same name", "/apps/a/pod/apps/a/x", "x", "x/"},
		{"the same name once more", "/apps/a/apps/a", "", ""},
		{"made by the app with the same name", "/pod/apps/a/apps/a/x", "apps/a/x", "apps/a/x/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, folder := range []string{"", "x", "apps/a/x", "init.scope", "pod/apps/a/x"} {
				text := "7\n142\n"
				if folder == test.process {
					text += "42\n"
				}
				if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, folder, "cgroup.procs"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := belowCgroup(test.path, "/apps/a", dir, pid); got != test.want {
				t.Errorf("%q is at %q below the container's, want %q", test.path, got, test.want)
			}
		})
	}
}
