package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// programsImage makes an image of busybox with scripts of the same name in several folders. Each
// script prints its folder. The one in /locked cannot be executed.
func programsImage(b *harness.Machine) harness.ImageRef {
	b.T.Helper()
	path := image(b, "programs", hostileManifest("programs"), func(root string) error {
		var errs []error
		for _, dir := range []string{"locked", "one", "two", "usr/local/sbin", "."} {
			mode := os.FileMode(0o755)
			if dir == "locked" {
				mode = 0o644
			}
			text := fmt.Sprintf("#!/bin/sh\necho %s \"$0\"\n", dir)
			errs = append(errs, os.MkdirAll(filepath.Join(root, dir), 0o755), os.WriteFile(filepath.Join(root, dir, "program"), []byte(text), mode))
		}
		return errors.Join(append(errs, os.Mkdir(filepath.Join(root, "from-image"), 0o755))...)
	})
	id := strings.TrimSpace(b.Must("image", "import", filepath.Join(suite.Images, "busybox.aci"), path))
	b.LayersAreNow()
	return harness.ImageRef{ID: id[strings.LastIndexByte(id, '\n')+1:]}
}

// A program name without a slash means the first executable file in the app's PATH, or in the default
// one; this also applies to handlers. A name with a slash is a path; PATH does not matter.
func TestProgramsAreFoundInPath(t *testing.T) {
	clause.Covers(t, "C-EXE-01")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	image := programsImage(b)
	app := func(name, program, path string) harness.AppDoc {
		return changed(suite.Command(name, program), func(s *harness.SectionDoc) {
			if path != "unset" {
				s.Environment = []harness.NameValue{{Name: "PATH", Value: path}}
			}
		})
	}
	doc := harness.PodOf(
		app("default", "program", "unset"), app("first", "program", "/nowhere:/two:/one"), app("executable", "program", "/locked:/one"),
		app("slash", "/two/program", "/one"), app("relative", "./program", "/one"), app("here", "program", "/nowhere::/one"), app("empty", "program", ""),
	)
	doc.Apps[1].App.EventHandlers = []harness.HandlerDoc{{Name: "pre-start", Exec: []string{"program"}}}
	for i := range doc.Apps {
		doc.Apps[i].Image = image
	}
	p := b.Up("p", doc)
	for name, want := range map[string]string{
		"default": "usr/local/sbin /usr/local/sbin/program\n", "first": "two /two/program\ntwo /two/program\n", "executable": "one /one/program\n",
		"slash": "two /two/program\n", "relative": ". ./program\n", "here": ". ./program\n", "empty": ". ./program\n",
	} {
		p.Exited(name)
		if diff := cmp.Diff(want, p.Logs(name)); diff != "" {
			t.Errorf("app %s (-want +have):\n%s", name, diff)
		}
	}
	p.Stop()
	for i, bad := range []harness.AppDoc{app("a", "program", "/nowhere"), app("a", "program", "/locked"), app("a", "/no/program", "/one"), app("a", "no/program", "/one")} {
		bad.Image = image
		b.Refuse(fmt.Sprint("refused", i), harness.PodOf(bad), `"a"`, bad.App.Exec[0])
	}
}

// An app does not start if its working directory does not exist or is a file. The directory may come
// from a volume or a dependency.
func TestWorkingDirectoriesAreEntered(t *testing.T) {
	clause.Covers(t, "C-CWD-02")
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	image := programsImage(b)
	dir := b.Folder("volume", 0o755)
	b.Folder("volume/sub", 0o755)
	app := func(name, directory string) harness.AppDoc {
		a := changed(suite.Shell(name, "pwd; ls -d ."), func(s *harness.SectionDoc) { s.WorkingDirectory = directory })
		a.Image, a.Mounts = image, []any{harness.MountDoc{Volume: "v", Path: "/v"}}
		return a
	}
	of := func(apps ...harness.AppDoc) harness.PodDoc {
		doc := harness.PodOf(apps...)
		doc.Volumes = []harness.VolumeDoc{{Name: "v", Kind: "host", Source: dir}}
		return doc
	}
	wants := map[string]string{"image": "/from-image", "dependency": "/tmp", "volume": "/v", "in-volume": "/v/sub"}
	var apps []harness.AppDoc
	for name, directory := range wants {
		apps = append(apps, app(name, directory))
	}
	p := b.Up("p", of(apps...))
	for name, directory := range wants {
		if code, _ := p.Exited(name); code != 0 || p.Logs(name) != directory+"\n.\n" {
			t.Errorf("app %s: exit code %d, it is in %q", name, code, p.Logs(name))
		}
	}
	p.Stop()
	for i, directory := range []string{"/not/there", "/v/missing", "/v/sub/../missing", "/bin/busybox", "/from-image/not"} {
		b.Refuse(fmt.Sprint("p", i), of(app("a", directory)), `"a"`, directory)
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 1 {
		t.Errorf("made in the volume: %v, %v", found, err)
	}
}

// groupFile reads a file of the memory controller in a process's cgroup, by its name with cgroup v1
// or v2.
func groupFile(t *testing.T, pid int, v1, v2 string) string {
	t.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case fields[1] == "memory":
			path = filepath.Join("/sys/fs/cgroup/memory", fields[2], v1)
		case fields[0] == "0" && path == "":
			path = filepath.Join("/sys/fs/cgroup", fields[2], v2)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(data))
}

// All notations of one quantity set the same limit of a running app.
func TestQuantitiesReachRunningApps(t *testing.T) {
	clause.Covers(t, "C-RES-01")
	t.Parallel()
	forms := []any{128974848, "128974848", "125952Ki", "123Mi", "128974.848k", "128974.848K", "128.974848M", "0.128974848G", "12897484800e-2", "128974847.9995", "128974848000m"}
	var apps []harness.AppDoc
	for i, form := range forms {
		app := suite.Shell(fmt.Sprint("a", i), "exec sleep 1000")
		app.App.Isolators = []any{harness.Isolator("resource/memory", map[string]any{"limit": form})}
		apps = append(apps, app)
	}
	p := suite.NewMachine(t).Up("p", hostPID(apps...))
	status := p.Status()
	for i, form := range forms {
		if have := groupFile(t, status[fmt.Sprint("a", i)].PID, "memory.limit_in_bytes", "memory.max"); have != "128974848" {
			t.Errorf("%v is %s", form, have)
		}
	}
	p.Stop()
}
