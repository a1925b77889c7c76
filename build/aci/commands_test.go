package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/signing"
	"kurma.io/stager/tests/surroundings"
)

const imageManifestText = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/web",
	"labels":[{"name":"version","value":"1.0"},{"name":"os","value":"linux"},{"name":"arch","value":"amd64"}],
	"app":{"exec":["/bin/web"],"user":"0","group":"0"}}`

// aci runs a command and returns its exit status and output.
func aci(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, messages bytes.Buffer
	code = exitStatus(dispatch(streams{&out, &messages}, args), &messages)
	return code, out.String(), messages.String()
}

// must runs a command that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, messages := aci(t, args...)
	if code != 0 {
		t.Fatalf("aci %s: exit status %d, %s", strings.Join(args, " "), code, messages)
	}
	return out
}

// rootTree makes a folder with files of several kinds.
func rootTree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"bin", "private"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "bin"), "web", "#!/bin/sh\n")
	write(t, filepath.Join(root, "private"), "setuid", "x")
	for _, err := range []error{
		os.Symlink("web", filepath.Join(root, "bin/link")),
		os.Link(filepath.Join(root, "bin/web"), filepath.Join(root, "bin/again")),
		os.Chmod(filepath.Join(root, "private/setuid"), 0o4755|os.ModeSetuid),
		os.Chmod(filepath.Join(root, "private"), 0o500),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func builtImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image := filepath.Join(dir, "web.aci")
	must(t, "build", "--manifest", write(t, dir, "m.json", imageManifestText), "--root", rootTree(t), "-o", image)
	return image
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	first, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(b); err != nil || !bytes.Equal(first, second) {
		t.Errorf("%s and %s differ: %v", a, b, err)
	}
}

func TestAnExtractedImageIsBuiltAgainByteForByte(t *testing.T) {
	surroundings.Root(t)
	image := builtImage(t)
	dir := filepath.Join(t.TempDir(), "web")
	id := must(t, "extract", image, dir)
	again := filepath.Join(t.TempDir(), "again.aci")
	must(t, "build", "--manifest", filepath.Join(dir, "manifest"), "--root", filepath.Join(dir, "rootfs"), "-o", again)
	sameFiles(t, image, again)
	if out := must(t, "inspect", again); !strings.Contains(out, strings.TrimSpace(id)) {
		t.Errorf("the ID %s is not in\n%s", id, out)
	}
	if code, _, message := aci(t, "extract", image, dir); code != 1 || !strings.Contains(message, "exists") {
		t.Errorf("a folder that exists: %d, %s", code, message)
	}
}

// A file of GNU tar with holes has them when it is extracted, however large they are.
func TestAnExtractedFileHasItsHoles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "rootfs/holes"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("end"), 64<<20)
	if err := errors.Join(err, file.Close(), os.WriteFile(filepath.Join(dir, "manifest"), []byte(imageManifestText), 0o644)); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image.aci")
	if out, err := exec.Command("tar", "--format=gnu", "--sparse", "-C", dir, "-cf", image, "manifest", "rootfs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	into := filepath.Join(t.TempDir(), "into")
	must(t, "extract", image, into)
	info, err := os.Stat(filepath.Join(into, "rootfs/holes"))
	if err != nil || info.Size() != 64<<20+3 || info.Sys().(*syscall.Stat_t).Blocks > 100 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestInspectShowsAnImage(t *testing.T) {
	surroundings.Root(t)
	image := builtImage(t)
	var got inspected
	if err := json.Unmarshal([]byte(must(t, "inspect", "--json", image)), &got); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.ID, "sha512-") || len(got.ID) != len("sha512-")+128 || got.Size == 0 {
		t.Errorf("ID %s, size %d", got.ID, got.Size)
	}
	got.ID, got.Size = "", 0
	want := inspected{
		Name: "example.com/web", Labels: map[string]string{"version": "1.0", "os": "linux", "arch": "amd64"},
		Compression: "gzip", Files: 7, App: &inspectedApp{Exec: []string{"/bin/web"}, User: "0", Group: "0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if out := must(t, "inspect", "--manifest", image); out != imageManifestText {
		t.Errorf("manifest %s", out)
	}
	files := must(t, "inspect", "--files", image)
	for _, line := range []string{`"/bin/link" -> "web"`, `"/bin/web" = "/bin/again"`, `urwxr-xr-x     0     0          1 "/private/setuid"`} {
		if !strings.Contains(files, line) {
			t.Errorf("no %s in\n%s", line, files)
		}
	}
}

func TestSignAndVerify(t *testing.T) {
	surroundings.Root(t)
	image, dir := builtImage(t), t.TempDir()
	private, public := filepath.Join(dir, "private"), filepath.Join(dir, "public")
	fingerprint := strings.TrimSpace(must(t, "key", "--new", "me", "-o", private))
	must(t, "key", "--public", private, "-o", public)
	must(t, "sign", "--key", private, image)
	if out := must(t, "verify", "--key", public, image); out != image+": signed by "+fingerprint+"\n" {
		t.Errorf("verify prints %q", out)
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v, %v", info.Mode(), err)
	}
	if code, _, _ := aci(t, "key", "--new", "other", "-o", private); code != 1 {
		t.Error("a private key was overwritten")
	}
	other := filepath.Join(dir, "other")
	must(t, "key", "--new", "other", "-o", other)
	must(t, "key", "--public", other, "-o", other+".pub")
	code, _, message := aci(t, "verify", "--key", other+".pub", image)
	if code != 1 || !strings.Contains(message, signing.ErrUnknownKey.Error()) {
		t.Errorf("another key: %d, %s", code, message)
	}
	if err := os.WriteFile(image, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, message := aci(t, "verify", "--key", public, image); code != 1 || strings.Count(message, "\n") != 1 {
		t.Errorf("another file: %d, %s", code, message)
	}
}

// What a link such as /dev/stdout leads to, a pipe or a file, is written, and the link stays.
func TestALinkIsWrittenThrough(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, "key", "--new", "me", "-o", "private")
	must(t, "key", "--public", "private", "-o", "public")
	want, err := os.ReadFile("public")
	if err != nil {
		t.Fatal(err)
	}
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), write(t, dir, "file", strings.Repeat("old", 1000))} {
		_ = os.Remove("link")
		if err := os.Symlink(to, "link"); err != nil {
			t.Fatal(err)
		}
		must(t, "key", "--public", "private", "-o", "link")
		if now, err := os.Readlink("link"); now != to {
			t.Errorf("the link to %s: %q, %v", to, now, err)
		}
	}
	_ = pipe.Close()
	piped, err := io.ReadAll(read)
	written, readErr := os.ReadFile("file")
	if err := errors.Join(err, readErr); err != nil || !bytes.Equal(piped, want) || !bytes.Equal(written, want) {
		t.Errorf("%.80q, %.80q, %v", piped, written, err)
	}
	manifest := write(t, dir, "manifest", imageManifestText)
	code, _, words := aci(t, "build", "--manifest", manifest, "--root", t.TempDir(), "--key", "private", "-o", os.DevNull)
	if code != 1 || !strings.Contains(words, "not a regular file") {
		t.Errorf("a signed image without a file: %d, %s", code, words)
	}
}

// archive writes an image file of the entries. Each regular file's content is its name.
func archive(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		content := h.Name
		if h.Name == "manifest" {
			content = imageManifestText
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, t.TempDir(), "x.aci", out.String())
}

func entry(kind byte, name, link string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: link}
}

// The last entry of a name counts, as in the launcher's store.
func TestExtractTakesTheLastEntryOfAName(t *testing.T) {
	folder := func(name string, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}
	}
	for name, tt := range map[string]struct {
		entries []tar.Header
		want    os.FileMode // of rootfs/a
	}{
		"a file for a folder":           {[]tar.Header{folder("rootfs/a", 0o700), {Typeflag: tar.TypeReg, Name: "rootfs/a", Mode: 0o600}}, 0o600},
		"a file for a folder of others": {[]tar.Header{folder("rootfs/a/b", 0o700), {Typeflag: tar.TypeReg, Name: "rootfs/a", Mode: 0o600}}, 0o600},
		"a link for a folder":           {[]tar.Header{folder("rootfs/a", 0o700), entry(tar.TypeSymlink, "rootfs/a", "/etc")}, os.ModeSymlink | 0o777},
		"a folder for a folder":         {[]tar.Header{folder("rootfs/a", 0o700), folder("rootfs/a/b", 0o700), folder("rootfs/a", 0o711)}, os.ModeDir | 0o711},
	} {
		dir := filepath.Join(t.TempDir(), "x")
		manifest, root := entry(tar.TypeReg, "manifest", ""), entry(tar.TypeDir, "rootfs", "")
		if code, _, message := aci(t, "extract", archive(t, append([]tar.Header{manifest, root}, tt.entries...)...), dir); code != 0 {
			t.Errorf("%s: %d, %s", name, code, message)
			continue
		}
		if info, err := os.Lstat(filepath.Join(dir, "rootfs/a")); err != nil {
			t.Error(err)
		} else if info.Mode() != tt.want {
			t.Errorf("%s: %v, want %v", name, info.Mode(), tt.want)
		}
	}
}

func TestHostileImagesAreRefused(t *testing.T) {
	manifest, root := entry(tar.TypeReg, "manifest", ""), entry(tar.TypeDir, "rootfs", "")
	outside := t.TempDir()
	for name, image := range map[string]string{
		"no manifest":           archive(t, root),
		"no rootfs":             archive(t, manifest),
		"two manifests":         archive(t, manifest, manifest, root),
		"manifest is a link":    archive(t, entry(tar.TypeSymlink, "manifest", "/etc/passwd"), root),
		"another file":          archive(t, manifest, root, entry(tar.TypeReg, "more", "")),
		"path with ..":          archive(t, manifest, root, entry(tar.TypeReg, "rootfs/../../x", "")),
		"absolute path":         archive(t, manifest, root, entry(tar.TypeReg, "/rootfs/x", "")),
		"hard link out":         archive(t, manifest, root, entry(tar.TypeLink, "rootfs/x", "rootfs/../manifest")),
		"hard link to manifest": archive(t, manifest, root, entry(tar.TypeLink, "rootfs/x", "manifest")),
		"rootfs is a link":      archive(t, manifest, entry(tar.TypeSymlink, "rootfs", outside)),
		"not a tar":             write(t, t.TempDir(), "x.aci", strings.Repeat("x", 2000)),
		"empty":                 write(t, t.TempDir(), "x.aci", ""),
		"cut gzip":              write(t, t.TempDir(), "x.aci", "\x1f\x8b\x08\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"validate", image}, {"inspect", image}, {"extract", image, filepath.Join(t.TempDir(), "x")}} {
				if code, _, message := aci(t, args...); code != 1 || strings.Count(message, "\n") != 1 {
					t.Errorf("%s: exit status %d, %q", args[0], code, message)
				}
			}
		})
	}
	through := archive(t, manifest, root, entry(tar.TypeSymlink, "rootfs/out", outside), entry(tar.TypeReg, "rootfs/out/x", ""))
	if code, _, message := aci(t, "extract", through, filepath.Join(t.TempDir(), "x")); code != 1 {
		t.Errorf("a file behind a link that leads out: %d, %s", code, message)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
}

// Kurma's own build tool closes the compressed file before the tar, so its images have no end marker.
func TestAnImageWithoutAnEndMarkerIsValidWithAWarning(t *testing.T) {
	surroundings.Root(t)
	whole, err := os.ReadFile(archive(t, entry(tar.TypeReg, "manifest", ""), entry(tar.TypeDir, "rootfs", ""), entry(tar.TypeReg, "rootfs/file", "")))
	if err != nil {
		t.Fatal(err)
	}
	unmarked := write(t, t.TempDir(), "kurma.aci", string(whole[:len(whole)-1024]))
	for _, args := range [][]string{{"validate", unmarked}, {"extract", unmarked, filepath.Join(t.TempDir(), "x")}} {
		code, out, message := aci(t, args...)
		if code != 0 || out == "" || message != "aci: warning: "+unmarked+": the archive has no end marker and may be incomplete\n" {
			t.Errorf("aci %s: exit status %d, %q, %q", args[0], code, out, message)
		}
	}
	if _, _, message := aci(t, "validate", builtImage(t)); message != "" {
		t.Errorf("validate says of a whole image: %q", message)
	}
	cut := write(t, t.TempDir(), "cut.aci", string(whole[:len(whole)-1024-512]))
	if code, _, message := aci(t, "validate", cut); code != 1 || !strings.Contains(message, "unexpected EOF") {
		t.Errorf("an image that is cut off in a file: exit status %d, %q", code, message)
	}
}

func TestWrongUsageEndsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"biuld"},
		{"--bad"},
		{"build"},
		{"inspect"},
		{"inspect", "--bad", "x"},
		{"validate"},
		{"sign", "x"},
		{"sign", "--key", "k"},
		{"sign", "--key", "k", "--gpg", "g", "x"},
		{"verify", "x"},
		{"extract", "x"},
		{"key", "-o", "x"},
		{"key", "--new", "a", "--public", "b", "-o", "x"},
	} {
		code, out, message := aci(t, args...)
		if code != 2 || out != "" || strings.Count(message, "\n") != 1 {
			t.Errorf("aci %s: exit status %d, %q, %q", strings.Join(args, " "), code, out, message)
		}
	}
	for _, args := range [][]string{{"--help"}, {"build", "--help"}, {"version"}} {
		if out := must(t, args...); !strings.Contains(out, "aci ") {
			t.Errorf("aci %s prints %q", strings.Join(args, " "), out)
		}
	}
}

func TestTheArchitectureHasAppcsName(t *testing.T) {
	dir := t.TempDir()
	image := filepath.Join(dir, "x.aci")
	must(t, "build", "--manifest", repositoryManifest, "--stager", write(t, dir, "stager", "program"), "--arch", "arm64", "--unsigned", "-o", image)
	if out := must(t, "inspect", "--json", image); !strings.Contains(out, `"arch":"aarch64"`) {
		t.Error(out)
	}
	if left, err := filepath.Glob(image + ".*"); err != nil || left != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A signal ends aci also while it waits for a file.
func TestASignalEndsACommand(t *testing.T) {
	dir := t.TempDir()
	program, fifo := filepath.Join(dir, "aci"), filepath.Join(dir, "fifo")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	if err := errors.Join(err, syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "inspect", fifo)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var file *os.File
	surroundings.Eventually(t, "aci reads", func() bool {
		file, err = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	if err := errors.Join(err, cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Error(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.String() != "signal: terminated" {
		t.Error(cmd.ProcessState)
	}
	_ = file.Close()
}

// Appc's own tool accepts what aci makes, and aci what the tool makes and accepts.
func TestActoolAgrees(t *testing.T) {
	surroundings.Root(t)
	actool := filepath.Join(t.TempDir(), "actool")
	if out, err := exec.Command("go", "build", "-o", actool, "github.com/appc/spec/actool").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) error {
		out, err := exec.Command(actool, args...).CombinedOutput()
		t.Logf("actool %s: %v\n%s", strings.Join(args, " "), err, out)
		return err
	}
	dir := t.TempDir()
	stager := filepath.Join(dir, "stager.aci")
	must(t, "build", "--manifest", repositoryManifest, "--stager", write(t, dir, "stager", "program"), "-o", stager)
	for _, image := range []string{builtImage(t), stager} {
		if err := run("validate", image); err != nil {
			t.Errorf("actool does not accept %s: %v", image, err)
		}
	}
	layout := filepath.Join(dir, "layout")
	must(t, "extract", builtImage(t), layout)
	theirs := filepath.Join(dir, "theirs.aci")
	if err := run("build", layout, theirs); err != nil {
		t.Fatal(err)
	}
	must(t, "validate", theirs)
	if out := must(t, "inspect", theirs); !strings.Contains(out, "example.com/web") {
		t.Error(out)
	}
	manifest, root := entry(tar.TypeReg, "manifest", ""), entry(tar.TypeDir, "rootfs", "")
	for name, image := range map[string]string{
		"no manifest":  archive(t, root),
		"no rootfs":    archive(t, manifest),
		"another file": archive(t, manifest, root, entry(tar.TypeReg, "more", "")),
	} {
		if code, _, _ := aci(t, "validate", image); (code == 0) != (run("validate", image) == nil) {
			t.Errorf("%s: aci and actool do not agree", name)
		}
	}
}

func TestTheManPageHasEveryCommandAndOption(t *testing.T) {
	page := must(t, "man")
	for _, want := range []string{
		".SH NAME\naci \\- ", ".SS aci build ", ".SS aci key ", "\\fB\\-\\-keep\\-owners\\fR", "\\fB\\-o\\fR \\fIfile\\fR\nthe image file to write\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page is without %q:\n%s", want, page)
		}
	}
	if have := strings.Count(page, "\n.SS "); have != len(commands()) {
		t.Errorf("the page has %d commands, want %d", have, len(commands()))
	}
}
