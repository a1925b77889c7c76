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
)

// programsImage makes an image of busybox with scripts of the same name in several folders. Each
// script prints its folder. The one in /locked cannot be executed.
func (b *machine) programsImage() imageRef {
	b.t.Helper()
	path := b.image("programs", hostileManifest("programs"), func(root string) error {
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
	id := strings.TrimSpace(b.must("image", "import", filepath.Join(suite.images, "busybox.aci"), path))
	b.layersAreNow()
	return imageRef{id[strings.LastIndexByte(id, '\n')+1:]}
}

// A program name without a slash means the first executable file in the app's PATH, or in the default
// one; this also applies to handlers. A name with a slash is a path; PATH does not matter.
func TestProgramsAreFoundInPath(t *testing.T) {
	clause.Covers(t, "C-EXE-01")
	t.Parallel()
	b := newMachine(t, ownStore())
	image := b.programsImage()
	app := func(name, program, path string) appDoc {
		return changed(command(name, program), func(s *sectionDoc) {
			if path != "unset" {
				s.Environment = []nameValue{{"PATH", path}}
			}
		})
	}
	doc := podOf(
		app("default", "program", "unset"), app("first", "program", "/nowhere:/two:/one"), app("executable", "program", "/locked:/one"),
		app("slash", "/two/program", "/one"), app("relative", "./program", "/one"), app("here", "program", "/nowhere::/one"), app("empty", "program", ""),
	)
	doc.Apps[1].App.EventHandlers = []handlerDoc{{"pre-start", []string{"program"}}}
	for i := range doc.Apps {
		doc.Apps[i].Image = image
	}
	p := b.up("p", doc)
	for name, want := range map[string]string{
		"default": "usr/local/sbin /usr/local/sbin/program\n", "first": "two /two/program\ntwo /two/program\n", "executable": "one /one/program\n",
		"slash": "two /two/program\n", "relative": ". ./program\n", "here": ". ./program\n", "empty": ". ./program\n",
	} {
		p.exited(name)
		if diff := cmp.Diff(want, p.logs(name)); diff != "" {
			t.Errorf("app %s (-want +have):\n%s", name, diff)
		}
	}
	p.stop()
	for i, bad := range []appDoc{app("a", "program", "/nowhere"), app("a", "program", "/locked"), app("a", "/no/program", "/one"), app("a", "no/program", "/one")} {
		bad.Image = image
		b.refuse(fmt.Sprint("refused", i), podOf(bad), `"a"`, bad.App.Exec[0])
	}
}

// An app does not start if its working directory does not exist or is a file. The directory may come
// from a volume or a dependency.
func TestWorkingDirectoriesAreEntered(t *testing.T) {
	clause.Covers(t, "C-CWD-02")
	t.Parallel()
	b := newMachine(t, ownStore())
	image := b.programsImage()
	dir := b.folder("volume", 0o755)
	b.folder("volume/sub", 0o755)
	app := func(name, directory string) appDoc {
		a := changed(shell(name, "pwd; ls -d ."), func(s *sectionDoc) { s.WorkingDirectory = directory })
		a.Image, a.Mounts = image, []any{mountDoc{"v", "/v"}}
		return a
	}
	of := func(apps ...appDoc) podDoc {
		doc := podOf(apps...)
		doc.Volumes = []volumeDoc{{Name: "v", Kind: "host", Source: dir}}
		return doc
	}
	wants := map[string]string{"image": "/from-image", "dependency": "/tmp", "volume": "/v", "in-volume": "/v/sub"}
	var apps []appDoc
	for name, directory := range wants {
		apps = append(apps, app(name, directory))
	}
	p := b.up("p", of(apps...))
	for name, directory := range wants {
		if code, _ := p.exited(name); code != 0 || p.logs(name) != directory+"\n.\n" {
			t.Errorf("app %s: exit code %d, it is in %q", name, code, p.logs(name))
		}
	}
	p.stop()
	for i, directory := range []string{"/not/there", "/v/missing", "/v/sub/../missing", "/bin/busybox", "/from-image/not"} {
		b.refuse(fmt.Sprint("p", i), of(app("a", directory)), `"a"`, directory)
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
	var apps []appDoc
	for i, form := range forms {
		app := shell(fmt.Sprint("a", i), "exec sleep 1000")
		app.App.Isolators = []any{isolator("resource/memory", map[string]any{"limit": form})}
		apps = append(apps, app)
	}
	p := newMachine(t).up("p", hostPID(apps...))
	status := p.status()
	for i, form := range forms {
		if have := groupFile(t, status[fmt.Sprint("a", i)].PID, "memory.limit_in_bytes", "memory.max"); have != "128974848" {
			t.Errorf("%v is %s", form, have)
		}
	}
	p.stop()
}
