package rootfs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/spec"
)

// Whatever links an image has, only files in its own root are replaced.
func TestTargetsStayInTheRoot(t *testing.T) {
	root, outside, source := t.TempDir(), t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim")
	err := errors.Join(
		os.WriteFile(victim, nil, 0o600), os.WriteFile(filepath.Join(root, "file"), nil, 0o600),
		os.Symlink(outside, filepath.Join(root, "absolute")), os.Symlink(victim, filepath.Join(root, "last")),
		os.Symlink(strings.Repeat("../", 20)+outside, filepath.Join(root, "relative")), os.Symlink("loop", filepath.Join(root, "loop")),
	)
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	for _, target := range []string{"/file", "/missing/x", "/absolute/victim", "/relative/victim", "/last", "/../file"} {
		mounts, err := ResolveTargets(root, []spec.Mount{{Source: source, Target: target}})
		if err := errors.Join(err, PrepareTargets(root, mounts, log)); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
	if _, err := ResolveTargets(root, []spec.Mount{{Source: source, Target: "/loop/x"}}); err == nil {
		t.Error("a loop of links is not an error")
	}
	if info, err := os.Lstat(victim); err != nil || !info.Mode().IsRegular() {
		t.Errorf("a file outside is %v, %v", info, err)
	}
	if info, err := os.Lstat(filepath.Join(root, "file")); err != nil || info.Mode() != os.ModeDir|0o755 {
		t.Errorf("the file in the root is %v, %v", info, err)
	}
	if strings.Count(logged.String(), "hides") != 1 {
		t.Errorf("the log is\n%s", logged.String())
	}
}

// A folder takes the place of a file, and the log says so. A file at a folder is refused with the paths of both.
func TestAMountOfAnotherTypeIsTold(t *testing.T) {
	root, source := t.TempDir(), t.TempDir()
	file := filepath.Join(source, "file")
	err := errors.Join(
		os.WriteFile(file, nil, 0o600), os.WriteFile(filepath.Join(root, "conf"), nil, 0o600),
		os.Mkdir(filepath.Join(root, "empty"), 0o755), os.MkdirAll(filepath.Join(root, "full/x"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ source, target, logged, err string }{
		{source, "/conf", "a folder takes the place of the file at /conf", ""},
		{source, "/empty", "", ""},
		{source, "/full", "a folder that is not empty at /full", ""},
		{file, "/missing", "", ""},
		{file, "/empty", "", `prepare mount target "/empty": the volume ` + file + " is a file"},
	} {
		var logged bytes.Buffer
		err := PrepareTargets(root, []spec.Mount{{Source: test.source, Target: test.target}}, slog.New(slog.NewTextHandler(&logged, nil)))
		if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s at %s: %v, want %q", test.source, test.target, err, test.err)
		}
		if (logged.Len() > 0) != (test.logged != "") || !strings.Contains(logged.String(), test.logged) {
			t.Errorf("%s at %s: the log is %q, want %q", test.source, test.target, logged.String(), test.logged)
		}
	}
}

func TestTargetsAreResolvedInTheRoot(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(
		os.Mkdir(filepath.Join(root, "run"), 0o755), os.Mkdir(filepath.Join(root, "a"), 0o755), os.Mkdir(filepath.Join(root, "var"), 0o755),
		os.Symlink("/run", filepath.Join(root, "var/run")), os.Symlink("/dev", filepath.Join(root, "dev1")),
		os.Symlink("../../../dev/pts/", filepath.Join(root, "pts")), os.Symlink("/proc/sys", filepath.Join(root, "proc1")),
		os.Symlink(".", filepath.Join(root, "self")), os.Symlink("a", filepath.Join(root, "b")), os.Symlink("/not/there", filepath.Join(root, "dangling")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		targets []string
		want    []string
		err     string
	}{
		{"as they are", []string{"/x/y", "/a"}, []string{"/x/y", "/a"}, ""},
		{"through a link", []string{"/var/run/db"}, []string{"/run/db"}, ""},
		{"to what is not there", []string{"/dangling"}, []string{"/not/there"}, ""},
		{"below /dev", []string{"/dev1/x"}, []string{"/dev/x"}, ""},
		{"/dev", []string{"/dev1"}, nil, `mount target "/dev1" leads to "/dev": nothing can be mounted over /dev`},
		{"in /dev/pts", []string{"/pts/0"}, nil, `mount target "/pts/0" leads to "/dev/pts/0": nothing can be mounted over /dev/pts`},
		{"in /proc", []string{"/proc1"}, nil, `nothing can be mounted over /proc`},
		{"the root", []string{"/self"}, nil, `mount target "/self" leads to "/": nothing can be mounted over /`},
		{"equal", []string{"/a", "/b"}, nil, `mount targets "/a" and "/b" lead to "/a" and "/a", which are equal or one inside the other`},
		{"nested", []string{"/b/sub", "/a"}, nil, `lead to "/a/sub" and "/a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mounts []spec.Mount
			for _, target := range test.targets {
				mounts = append(mounts, spec.Mount{Target: target})
			}
			resolved, err := ResolveTargets(root, mounts)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			var got []string
			for _, m := range resolved {
				got = append(got, m.Target)
			}
			if err != nil || !slices.Equal(got, test.want) || mounts[0].Target != test.targets[0] {
				t.Errorf("targets %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
