package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// slowImage is an image whose second layer is large enough to be sent in parts.
func slowImage(t *testing.T) (image v1.Image, slow string) {
	t.Helper()
	image = layeredImage(t, "small", strings.Repeat("large", 1<<16))
	return image, "/" + must(must(image.Layers())[1].Digest()).String()
}

// start starts the launcher with a terminal for its messages, of which the test reads the other end.
func (h *host) start(args ...string) (cmd *exec.Cmd, terminal *os.File) {
	h.t.Helper()
	terminal, slave := openTerminal(h.t)
	defer slave.Close()
	h.t.Cleanup(func() { _ = terminal.Close() })
	cmd = h.command(args...)
	cmd.Stderr = slave
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, terminal
}

// readUntil returns what the terminal receives until that has the text, or until its end.
func readUntil(terminal *os.File, text string) string {
	var all bytes.Buffer
	part := make([]byte, 1<<10)
	for text == "" || !strings.Contains(all.String(), text) {
		n, err := terminal.Read(part)
		all.Write(part[:n])
		if err != nil {
			break
		}
	}
	return all.String()
}

// An import that was interrupted before it began has imported nothing, and says so.
func TestAnInterruptedImportFails(t *testing.T) {
	h := newHost(t)
	c := &cli{daemon: must(daemon.Open(must(daemon.ReadConfig(filepath.Join(h.dir, "config.json"))), daemon.Options{}))}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.importImages(ctx, []string{h.image("a.aci", baseManifest), h.image("b.aci", baseManifest)})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 of 2 files are not imported") || len(h.listed()) != 2 {
		t.Errorf("%v, images %v", err, h.listed())
	}
}

// A pull shows on a terminal how much of all layers there is, on a line that is erased at the end. SIGINT ends it at once,
// also while the server sends nothing, and nothing is left of it.
func TestAPullShowsItsProgressAndIsInterrupted(t *testing.T) {
	for _, signalled := range []bool{false, true} {
		t.Run(fmt.Sprint(signalled), func(t *testing.T) {
			h := newHost(t)
			h.configure(`"cacheDirectory":"cache"`)
			image, slow := slowImage(t)
			shown := make(chan struct{})
			hurry := sync.OnceFunc(func() { close(shown) })
			defer hurry()
			server := newBlobs(t, func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
				if strings.HasSuffix(r.URL.Path, slow) {
					return slowly{w, shown}
				}
				return w
			})
			web := server.push("team/web", image)
			cmd, terminal := h.start("image", "import", web)
			if text := readUntil(terminal, " %"); !strings.Contains(text, "\r\x1b[Klauncher: import "+web+" … ") {
				t.Errorf("the terminal has received %q", text)
			}
			if signalled {
				_ = cmd.Process.Signal(unix.SIGINT)
			} else {
				hurry()
			}
			text, err := readUntil(terminal, ""), cmd.Wait()
			if !signalled {
				if err != nil || !strings.HasSuffix(text, "\r\x1b[K") || len(h.layers()) != 2 {
					t.Errorf("%v, %q, layers %q", err, text, h.layers())
				}
				return
			}
			if cmd.ProcessState.ExitCode() != 130 || !strings.HasSuffix(text, "\r\x1b[Klauncher: import docker://"+web+": interrupted by SIGINT\r\n") {
				t.Errorf("%v, %q", err, text)
			}
			h.checkNothingPulled()
		})
	}
}

// checkNothingPulled checks that neither store nor cache have anything of an image of two layers.
func (h *host) checkNothingPulled() {
	h.t.Helper()
	h.checkLayers(0, "after an interrupted pull")
	for _, pattern := range []string{"images/.tmp*", "cache/parts/*", "cache/.*"} {
		if left := must(filepath.Glob(filepath.Join(h.dir, pattern))); len(left) > 0 {
			h.t.Errorf("left: %q", left)
		}
	}
}

// slowly sends an answer byte by byte until shown is closed.
type slowly struct {
	http.ResponseWriter
	shown <-chan struct{}
}

func (s slowly) Write(data []byte) (int, error) {
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for i := range data {
		select {
		case <-s.shown:
			n, err := s.ResponseWriter.Write(data[i:])
			return i + n, err
		case <-ticks.C:
		}
		if _, err := s.ResponseWriter.Write(data[i : i+1]); err != nil {
			return i, err
		}
		s.ResponseWriter.(http.Flusher).Flush()
	}
	return len(data), nil
}

// SIGINT ends a pull at once, whatever it waits for: an answer, or another pull of the same layer.
func TestAPullThatWaitsIsInterrupted(t *testing.T) {
	h := newHost(t)
	h.configure(`"cacheDirectory":"cache"`)
	image, slow := slowImage(t)
	asked, ended := make(chan struct{}, 2), make(chan struct{})
	defer close(ended)
	config, configs := must(image.ConfigName()).String(), make(chan struct{}, 2)
	server := newBlobs(t, func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
		switch {
		case strings.HasSuffix(r.URL.Path, slow):
			asked <- struct{}{}
			<-ended
		case strings.HasSuffix(r.URL.Path, config):
			configs <- struct{}{}
		}
		return w
	})
	web := server.push("web", image)
	first, firstTerminal := h.start("image", "import", web)
	<-asked
	<-configs
	second, secondTerminal := h.start("run", "--detach", web)
	<-configs // what is left to do is to wait for the first
	for _, p := range []struct {
		cmd      *exec.Cmd
		terminal *os.File
	}{{second, secondTerminal}, {first, firstTerminal}} {
		_ = p.cmd.Process.Signal(unix.SIGINT)
		text := readUntil(p.terminal, "")
		if _ = p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 130 || !strings.Contains(text, "interrupted by SIGINT") {
			t.Errorf("%v, %q", p.cmd.ProcessState, text)
		}
	}
	h.checkNothingPulled()
}

// blocked waits until a process waits for a lock of a file.
func blocked(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	surroundings.Eventually(t, "the launcher waits for a lock", func() bool {
		for line := range strings.Lines(string(must(os.ReadFile("/proc/locks")))) {
			if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "->" && fields[5] == fmt.Sprint(cmd.Process.Pid) {
				return true
			}
		}
		return false
	})
}

// A second SIGINT kills a launcher whose import cannot be interrupted.
func TestASecondSignalKillsAPull(t *testing.T) {
	h := newHost(t)
	server := newBlobs(t, unseen)
	web := server.push("web", layeredImage(t, "web"))
	for _, args := range [][]string{{"image", "import", web}, {"run", "--detach", web}, {"validate", web}} {
		store := must(os.Open(filepath.Join(h.dir, "images", ".lock")))
		if err := unix.Flock(int(store.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		cmd, _ := h.start(args...)
		blocked(t, cmd)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if !surroundings.Eventually(t, "the launcher ends", func() bool {
			_ = cmd.Process.Signal(unix.SIGINT)
			return len(ended) > 0
		}) {
			_ = cmd.Process.Kill()
		}
		<-ended
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != unix.SIGINT {
			t.Errorf("%s: %v", args, cmd.ProcessState)
		}
		_ = store.Close()
	}
}
