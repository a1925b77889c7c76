package tests

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// example is a stager of the folder examples, a module of its own.
type example struct {
	name  string
	build []string // the arguments of go build, before the output and the package
	cgo   bool
	add   string                                 // a script in the example's folder that fills the folder $1 with further files of the image
	more  func(t *testing.T, b *harness.Machine) // what else the example shows, with its image
}

func examples() []example {
	static := []string{"-trimpath", "-tags", "seccomp netgo osusergo", "-ldflags", "-s -w -linkmode external -extldflags '-static'"}
	return []example{
		{name: "mini", build: static, cgo: true},
		{name: "fuse", build: static, cgo: true, add: "fill.sh", more: checkFuse},
	}
}

// image builds the example's stager image, signed by a key of its own, and returns its file.
func (e example) image(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join("..", "examples", e.name)
	build := exec.Command("go", append(append([]string{"build"}, e.build...), "-o", filepath.Join(dir, e.name), ".")...)
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if e.cgo {
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build example %s: %v\n%s", e.name, err, out)
	}
	image := filepath.Join(dir, e.name+".aci")
	args := []string{"--manifest", "../aci-manifest.json", "--stager", filepath.Join(dir, e.name), "--version", "0.0.1", "-o", image}
	if e.add != "" {
		files := filepath.Join(dir, "files")
		fill := exec.Command("./"+e.add, files)
		fill.Dir = source
		if out, err := fill.CombinedOutput(); err != nil {
			t.Fatalf("fill image of example %s: %v\n%s", e.name, err, out)
		}
		args = append(args, "--add", files)
	}
	if out, err := exec.Command(filepath.Join(filepath.Dir(suite.Launcher), "aci"), args...).CombinedOutput(); err != nil {
		t.Fatalf("build image of example %s: %v\n%s", e.name, err, out)
	}
	return image
}

// withStager sets up for the machine an image store of its own with that stager and the images of the apps.
func withStager(image string) harness.Option {
	return func(b *harness.Machine) {
		b.Store = filepath.Join(b.Dir, "images")
		b.Images = []string{image}
		for _, name := range []string{"nats", "busybox"} {
			b.Images = append(b.Images, filepath.Join(suite.Images, name+".aci"))
		}
		b.Config["trustedKeys"] = []string{image + ".pub"}
	}
}

// Each example runs the specification's pod, a NATS server, with a volume, an isolator and a
// second app, answers every call-in, and leaves nothing behind.
func TestExamplesRunTheSpecificationsPod(t *testing.T) {
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			b := suite.NewMachine(t, withStager(e.image(t)))
			shared := b.Folder("shared", 0o777)
			p := b.Up("example", examplePod(shared))
			checkExample(t, p, shared)
			p.Stop()
			if e.more != nil {
				e.more(t, b)
			}
		})
	}
}

// examplePod is a NATS server and a shell that writes to a volume of the host until a command
// makes it end.
func examplePod(shared string) harness.PodDoc {
	server := harness.AppDoc{Name: "nats", Image: harness.ImageRef{ID: suite.IDs["nats"]}}
	writer := suite.Shell("writer", `trap 'exit 7' TERM
		id -u >/shared/uid
		echo $$ >/shared/pid
		echo hello from the example
		while :; do echo tick; sleep 1; done`)
	writer.App.Isolators = []any{harness.Isolator("resource/memory", map[string]string{"limit": "64Mi"})}
	return harness.PodOf(server, writer).HostVolume("shared", shared, "/shared")
}

func checkExample(t *testing.T, p *harness.Pod, shared string) {
	t.Helper()
	p.Sees("writer", "hello from the example")
	if text, err := os.ReadFile(filepath.Join(shared, "uid")); err != nil || string(text) != "0\n" {
		t.Errorf("volume has %q, %v", text, err)
	}
	status := p.Status()
	for _, app := range []string{"nats", "writer"} {
		if s := status[app]; s.PID == 0 || s.Exited {
			t.Errorf("status of %s: %+v", app, s)
		}
	}
	if r := p.Exec("nats", "/gnatsd", "--version"); r.Code != 0 || !strings.Contains(r.Stdout, "nats-server") {
		t.Errorf("exec: %+v", r)
	}
	if r := p.Exec("writer", "/bin/sh", "-c", "exit 3"); r.Code != 3 {
		t.Errorf("exec: %+v", r)
	}
	r := harness.Finish(t, p.InNetwork(filepath.Join(suite.Images, "natstalk"), "greetings", "hello"))
	if r.Code != 0 || !strings.Contains(r.Stdout, "hello") {
		t.Errorf("natstalk: %+v", r)
	}
	checkAttach(t, p)
	if code, _ := p.Exited("writer"); code != 7 {
		t.Errorf("writer ended with %d, want 7", code)
	}
}

// checkAttach attaches to the writer, makes it end by a command in it, and sees its output
// and its exit code.
func checkAttach(t *testing.T, p *harness.Pod) {
	t.Helper()
	attach := p.Command("attach", p.Name, "writer")
	out, err := attach.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := attach.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(harness.Patience, func() { _ = attach.Process.Kill() })
	defer late.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "tick\n" {
		t.Errorf("attach: %q, %v", line, err)
	}
	if r := p.Exec("writer", "/bin/sh", "-c", "kill -TERM $(cat /shared/pid)"); r.Code != 0 {
		t.Errorf("exec kill: %+v", r)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := attach.Wait(); attach.ProcessState.ExitCode() != 7 {
		t.Errorf("attach ended with %v, want exit status 7", err)
	}
}
