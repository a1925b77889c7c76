package tests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// The pod of an image ends with its app, detached, too. The pod of a manifest stays until it is stopped, and so does
// one of an image whose --exit-policy says so.
func TestDetachedPodOfAnImageEndsWithItsApp(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const image = "kurma.io/stager/tests/busybox"
	detached := []string{"run", "--detach", "--name"}
	b.Must(append(detached, "short", image, "--", "-c", "exit 3")...)
	if out := b.Must("wait", "short"); out != "3\n" {
		t.Errorf("wait: %q", out)
	}
	b.Must(append(detached, "gone", "--rm", image, "--", "-c", "exit 3")...)
	harness.Eventually(t, "the end of run --rm", func() bool {
		return !slices.ContainsFunc(b.PS(), func(p harness.PodInfo) bool { return p.Name == "gone" })
	})
	b.Must(append(detached, "manifest", b.Write("manifest.json", harness.PodOf(suite.Shell("a", "exit 3"))))...)
	b.Must(append(detached, "policy", "--exit-policy", "never", image, "--", "-c", "exit 3")...)
	for _, name := range []string{"manifest", "policy"} {
		harness.Eventually(t, "the end of the app of "+name, func() bool { return strings.Contains(b.Must("status", "--json", name), `"exitCode":3`) })
		if out := b.Must("ps"); !strings.Contains(out, name+"  ") {
			t.Errorf("pod %s has ended with its app:\n%s", name, out)
		}
		b.Must("stop", name)
	}
}

// A pod that has ended stays with its logs and status, however it was run and has ended, until rm or gc deletes it; other
// commands do not.
func TestEndedPodsStayUntilRmOrGC(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	short := b.Write("short.json", harness.PodOf(suite.Shell("a", "echo words")))
	long := b.Write("long.json", harness.PodOf(suite.Shell("a", "echo words; exec sleep 1000")))
	detached := func(name string, then ...string) {
		b.Must("run", "--detach", "--name", name, "--exit-policy", "all", long)
		harness.Eventually(t, "the app has written", func() bool { return b.Launcher("logs", name).Stdout == "words\n" })
		b.Must(then...)
		b.Must("wait", name)
	}
	ways := map[string]func(name string){
		"foreground": func(name string) { b.Must("run", "--name", name, short) },
		"interrupted": func(name string) {
			cmd := b.Command("run", "--name", name, long)
			out, err := cmd.StdoutPipe()
			if err := errors.Join(err, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			_ = cmd.Process.Signal(unix.SIGINT)
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		},
		"interactive": func(name string) {
			b.Must("run", "--interactive", "--name", name, "kurma.io/stager/tests/busybox", "--", "-c", "echo words")
		},
		"by-itself": func(name string) {
			b.Must("run", "--detach", "--name", name, "--exit-policy", "all", short)
			b.Must("wait", name)
		},
		"stopped":    func(name string) { detached(name, "stop", name) },
		"killed":     func(name string) { detached(name, "kill", name) },
		"app-killed": func(name string) { detached(name, "kill", name, "a") },
	}
	folders := make(map[string]string) // of the pods, by their names
	for name, run := range ways {
		run(name)
		for _, p := range b.PS() {
			if p.Name == name {
				folders[name] = filepath.Join(b.Pods, p.UUID)
			}
		}
	}
	check := func(when string, gone ...string) {
		t.Helper()
		states := make(map[string]string)
		for _, p := range b.PS() {
			states[p.Name] = p.State
		}
		for name, folder := range folders {
			_, err := os.Stat(folder)
			if slices.Contains(gone, name) {
				if !os.IsNotExist(err) || states[name] != "" {
					t.Errorf("%s the pod %q is there: %q, %v", when, name, states[name], err)
				}
				continue
			}
			logs, status := b.Launcher("logs", name), b.Launcher("status", "--json", name)
			if states[name] != "exited" || logs.Stdout != "words\n" || !strings.Contains(status.Stdout, `"exited":true`) {
				t.Errorf("%s the pod %q is %q; logs %+v, status %+v", when, name, states[name], logs, status)
			}
		}
	}
	if len(folders) != len(ways) {
		t.Fatalf("of %d pods there are %v", len(ways), folders)
	}
	check("at its end")
	b.Must("run", "--rm", "--name", "other", short)
	b.Must("run", "--detach", "--name", "another", long)
	b.Must("stop", "--all")
	b.Must("rm", "another")
	check("after another pod")
	b.Must("rm", "stopped", "foreground")
	check("after rm of others", "stopped", "foreground")
	b.Must("gc")
	check("after gc", "foreground", "interrupted", "interactive", "by-itself", "stopped", "killed", "app-killed")
}

// The stager cannot write the apps' last states on a full disk: nothing says that the app has succeeded.
func TestAFailureOnAFullDiskIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	disk := b.Folder("disk", 0o755)
	b.MountTmpfs(disk, "size=40m")
	b.Pods = filepath.Join(disk, "pods")
	b.Config["podsDirectory"] = b.Pods
	b.Write("config.json", b.Config)
	p := b.Up("full", harness.PodOf(suite.Shell("a", `trap "exit 9" TERM; while :; do sleep 0.1; done`)))
	// Afterwards: the launcher writes the pod's state when the pod is up.
	p.Launcher("exec", p.Name, "a", "--", "sh", "-c", "cat /dev/zero >/fill")
	var left unix.Statfs_t
	if err := unix.Statfs(disk, &left); err != nil || left.Bavail != 0 {
		t.Fatalf("%d blocks are free, %v", left.Bavail, err)
	}
	p.Must("stop", p.Name)
	if out := p.Must("ps", "--all"); !strings.Contains(out, "exited (?)") {
		t.Errorf("ps: %s", out)
	}
	if r := p.Launcher("wait", p.Name); r.Code != 1 || r.Stdout != "?\n" {
		t.Errorf("wait: %+v", r)
	}
	if out := p.Must("status", p.Name); !strings.Contains(out, "last state not kept") {
		t.Errorf("status: %s", out)
	}
	if out := p.Must("events", "--since", "1h", "--stream=false"); !strings.Contains(out, "pod "+p.Name+" exited (?)") {
		t.Errorf("events: %s", out)
	}
}

// rm --force kills a pod whose state cannot be read, and whose monitor is not known therefore.
func TestADamagedPodThatRunsIsEnded(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("bad", harness.PodOf(suite.Shell("a", "trap '' TERM; echo up; while :; do sleep 0.05; done")))
	p.Sees("a", "up")
	if err := os.Truncate(filepath.Join(p.Dir, "state.json"), 0); err != nil {
		t.Fatal(err)
	}
	if out := b.Must("gc"); out != "" {
		t.Errorf("gc of a pod that runs: %q", out)
	}
	b.Must("rm", "--force", "bad")
	if _, err := os.Stat(p.Dir); !os.IsNotExist(err) || len(b.PS()) != 0 {
		t.Errorf("the pod is there: %v, %+v", err, b.PS())
	}
}

// gc leaves an ended pod whose output is still being shown to a slow reader, in the foreground and with stdin.
func TestGCLeavesAPodThatIsShown(t *testing.T) {
	t.Parallel()
	for _, interactive := range []string{"--interactive=false", "--interactive=true"} {
		t.Run(interactive, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			cmd := b.Command("run", interactive, "--name", "p", "kurma.io/stager/tests/busybox", "--", "-c", "head -c 30000000 /dev/zero; exit 3")
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the end of the pod", func() bool {
				all := b.PS()
				return len(all) == 1 && all[0].State == "exited"
			})
			if out := b.Must("gc", "--dry-run") + b.Must("gc"); strings.Contains(out, "pod ") {
				t.Errorf("gc: %s", out)
			}
			n, _ := io.Copy(io.Discard, out)
			if _ = cmd.Wait(); n != 30000000 || cmd.ProcessState.ExitCode() != 3 || said.Len() > 0 {
				t.Errorf("%d bytes, %s, %q", n, cmd.ProcessState, &said)
			}
			if out := b.Must("gc"); !strings.Contains(out, "pod ") {
				t.Errorf("gc afterwards: %s", out)
			}
		})
	}
}
