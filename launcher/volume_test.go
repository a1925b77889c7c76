package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/tests/surroundings"
)

// volumes lists the named volumes, each with its pods.
func (h *host) volumes() string {
	h.t.Helper()
	var all []string
	for _, v := range jsonLines[daemon.Volume](h.t, h.run("volume", "list", "--json")) {
		all = append(all, v.Name+":"+strings.Join(v.Pods, ","))
	}
	return strings.Join(all, " ")
}

func (h *host) expectVolumes(want string) {
	h.t.Helper()
	if have := h.volumes(); have != want {
		h.t.Errorf("volumes %q, want %q", have, want)
	}
}

// A named volume is made by the first pod that has it, outlives its pods, and cannot be removed as long as one of them
// is there, ended or not.
func TestANamedVolumeOutlivesItsPods(t *testing.T) {
	h := newHost(t)
	defer h.try("rm", "--force", "--all")
	h.text("p.json", `{"acKind":"PodManifest","acVersion":"0.8.11","volumes":[{"name":"v","kind":"named","source":"data"}],
		"apps":[{"name":"a","image":{"name":"example.com/one"}}]}`)
	h.run("validate", filepath.Join(h.dir, "p.json"))
	h.expectVolumes("")
	h.run("run", "--detach", filepath.Join(h.dir, "p.json"))
	h.run("run", "--detach", "--name", "q", "--volume", "data:/d", "--volume", "other:/o:ro", "example.com/one")
	h.expectVolumes("data:p,q other:q")
	if out := h.run("__complete", "volume", "rm", ""); !strings.Contains(out, "data\tp, q\nother\tq\n") {
		t.Errorf("completion: %q", out)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "volumes/data/data/file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(words string) {
		t.Helper()
		if r := h.try("volume", "rm", "data"); r.code != 1 || !strings.Contains(r.stderr, words) {
			t.Errorf("rm: %+v, want %q", r, words)
		}
	}
	refused(`volume "data": in use by pod "p"`)
	h.run("rm", "--force", "p")
	h.run("restart", "q")
	h.run("stop", "q")
	refused(`volume "data": in use by pod "q"`)
	h.run("volume", "prune", "--force")
	h.expectVolumes("data:q other:q")
	h.run("gc")
	h.expectVolumes("data: other:")
	if text, _ := os.ReadFile(filepath.Join(h.dir, "volumes/data/data/file")); string(text) != "text" {
		t.Error("the data is lost")
	}
	h.run("volume", "rm", "data")
	h.expectVolumes("other:")
}

// prune removes what a person has confirmed, and nothing in a dry run.
func TestPruneOfVolumes(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "p", "--volume", "a:/a", "--volume", "b:/b", "example.com/one")
	h.run("rm", "--force", "p")
	h.refuse(2, "volume prune: want --force without a terminal", "volume", "prune")
	if out := h.run("volume", "prune", "--dry-run"); out != "a\nb\n" {
		t.Errorf("dry run: %q", out)
	}
	h.expectVolumes("a: b:")
	if out := h.run("volume", "prune", "--force", "--json"); out != `{"name":"a"}`+"\n"+`{"name":"b"}`+"\n" {
		t.Errorf("prune: %q", out)
	}
	h.expectVolumes("")
}

// An exported volume can be imported under another name; nothing that exists is replaced, and a failed import leaves no
// volume.
func TestVolumesMoveAsArchives(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "p", "--volume", "a:/a", "example.com/one")
	h.run("rm", "--force", "p")
	at := filepath.Join(h.dir, "volumes/a/data")
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at, 7, 8); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(h.dir, "a.tar")
	h.run("volume", "export", "a", archive)
	h.refuse(1, "file already exists", "volume", "export", "a", archive)
	h.refuse(1, `no such volume: "none"`, "volume", "export", "none", filepath.Join(h.dir, "none.tar"))
	h.refuse(1, `make volume "a": volume exists`, "volume", "import", "a", archive)
	h.refuse(1, `volume "-x": want letters`, "volume", "import", "--", "-x", archive)
	h.refuse(1, "read archive", "volume", "import", "b", filepath.Join(h.dir, "config.json"))
	cut := h.command("volume", "import", "b", "-")
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	cut.Stdin = strings.NewReader(string(text[:len(text)-1024]))
	if r := h.finish(cut); r.code != 1 || !strings.Contains(r.stderr, "no end marker") {
		t.Errorf("import of a part: %+v", r)
	}
	h.expectVolumes("a:")
	if out := h.run("volume", "import", "b", archive); out != "b\n" {
		t.Errorf("import: %q", out)
	}
	info, err := os.Stat(filepath.Join(h.dir, "volumes/b/data/file"))
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("the file: %v, %v", info, err)
	}
	left, _ := filepath.Glob(filepath.Join(h.dir, "volumes/.*"))
	parts, _ := filepath.Glob(filepath.Join(h.dir, "*.part"))
	if len(left)+len(parts) > 0 {
		t.Errorf("left: %q %q", left, parts)
	}
}

// What a killed import has left is no volume, and gc removes it.
func TestAKilledImportLeavesNoVolume(t *testing.T) {
	h := newHost(t)
	cmd := h.command("volume", "import", "a", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(h.dir, "volumes/.new-a/data")
	surroundings.Eventually(t, "the import to begin", func() bool { _, err := os.Stat(begun); return err == nil })
	if out := h.run("gc", "--json"); !strings.Contains(out, `"imports":0`) {
		t.Errorf("gc beside an import: %s", out)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	_ = in.Close()
	h.expectVolumes("")
	for _, args := range [][]string{{"gc", "--dry-run", "--json"}, {"gc", "--json"}} {
		if out := h.run(args...); !strings.Contains(out, `"imports":1`) {
			t.Errorf("%q: %s", args, out)
		}
	}
	if _, err := os.Stat(filepath.Dir(begun)); err == nil {
		t.Error("gc has left the part of a volume")
	}
}

// A signal ends an import that waits for its archive, and leaves nothing.
func TestAnInterruptedImportOfAVolumeEnds(t *testing.T) {
	h := newHost(t)
	cmd := h.command("volume", "import", "a", "-")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(h.dir, "volumes/.new-a/data")
	surroundings.Eventually(t, "the import to begin", func() bool { _, err := os.Stat(begun); return err == nil })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit status %d", cmd.ProcessState.ExitCode())
	}
	if left, _ := os.ReadDir(filepath.Join(h.dir, "volumes")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A damaged pod may have any volume.
func TestAVolumeStaysBesideADamagedPod(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "--volume", "a:/a", "example.com/one"))
	h.run("stop", "p")
	h.damage("pods", uuid, "plan.json")
	if r := h.try("volume", "rm", "a"); r.code != 1 || !strings.Contains(r.stderr, "the damaged pod "+uuid+" may have it") {
		t.Errorf("rm: %+v", r)
	}
	h.run("rm", "--force", uuid)
	h.run("volume", "rm", "a")
}
