package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// stagerReport is what the fake stager writes of its surroundings.
type stagerReport struct {
	Args, Env           []string
	FDs                 map[string]string
	CWD                 string
	Umask               int
	Leader              bool
	Mounts, Cgroup, Net string
}

func (h *host) report(uuid string) stagerReport {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, "pods", uuid, "root/report"))
	if err != nil {
		h.t.Fatal(err)
	}
	var r stagerReport
	if err := json.Unmarshal(data, &r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

// mount returns the fields of mountinfo for a mount point, the last one there.
func (r stagerReport) mount(point string) []string {
	var found []string
	for line := range strings.SplitSeq(r.Mounts, "\n") {
		if fields := strings.Fields(line); len(fields) > 6 && fields[4] == point {
			found = fields
		}
	}
	return found
}

func TestStagerGetsWhatTheSpecificationSays(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	defer h.run("rm", "--force", "p")
	r := h.report(uuid)
	if !slices.Equal(r.Args, []string{names.Exec}) || fmt.Sprint(r.Env) != "[HOME=/root FROM=image]" {
		t.Errorf("argv %q, environment %q", r.Args, r.Env)
	}
	if r.CWD != "/" || r.Umask != 0o22 || !r.Leader {
		t.Errorf("cwd %q, umask %o, session leader %v", r.CWD, r.Umask, r.Leader)
	}
	if r.FDs["0"] != "/dev/null" || !strings.HasSuffix(r.FDs["1"], "stager.log") || r.FDs["1"] != r.FDs["2"] {
		t.Errorf("descriptors %v", r.FDs)
	}
	if !strings.HasPrefix(r.FDs["4"], "pipe:") || len(r.FDs) != 4 {
		t.Errorf("want descriptors 0, 1, 2 and 4, and 4 to be a pipe: %v", r.FDs)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(r.Cgroup), "\n") {
		if !strings.HasSuffix(line, ":/"+h.cgroup+"/"+uuid) {
			t.Errorf("cgroup %s", line)
		}
	}
	if links := strings.Count(r.Net, ":"); links != 1 || !strings.Contains(r.Net, "lo:") {
		t.Errorf("network devices:\n%s", r.Net)
	}
}

func TestTheStagersRootHasItsMounts(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one"))
	defer h.run("rm", "--force", "p")
	r := h.report(uuid)
	layers, err := filepath.Glob(filepath.Join(h.dir, "pods", uuid, "root/layers/sha512-*"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %q, %v", layers, err)
	}
	tests := []struct{ point, access string }{
		{"/", "rw"},
		{"/dev", "rw"},
		{"/proc", "rw"},
		{"/sys", "ro"},
		{"/layers/" + filepath.Base(layers[0]), "ro"},
	}
	for _, tt := range tests {
		fields := r.mount(tt.point)
		if fields == nil || !strings.HasPrefix(fields[5], tt.access) {
			t.Errorf("%s: %q, want %s", tt.point, fields, tt.access)
		}
	}
	cgroups := 0
	for line := range strings.SplitSeq(r.Mounts, "\n") {
		fields := strings.Fields(line)
		if !strings.Contains(line, " - cgroup") {
			continue
		}
		cgroups++
		if !strings.HasSuffix(fields[3], "/"+h.cgroup+"/"+uuid) || !strings.HasPrefix(fields[5], "rw") {
			t.Errorf("cgroup mount %s", line)
		}
	}
	if cgroups == 0 {
		t.Error("no cgroup is mounted")
	}
	if strings.Contains(r.Mounts, "shared:") {
		t.Errorf("a mount propagates:\n%s", r.Mounts)
	}
}

func TestVolumesAreMounted(t *testing.T) {
	h := newHost(t)
	dir, file := t.TempDir(), h.text("file", "content")
	pod := h.text("pod.json", `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"one","image":{"name":"example.com/one","id":""}}],
		"volumes":[{"name":"ro","kind":"host","source":"/nowhere","readOnly":true},{"name":"empty","kind":"empty","mode":"1777","uid":5,"gid":6}]}`)
	pod = h.text("pod.json", strings.Replace(string(must(os.ReadFile(pod))), `,"id":""`, "", 1))
	uuid := strings.TrimSpace(h.run("run", "--detach", "--volume", "ro="+dir, "--volume", "file="+file, pod))
	defer h.run("rm", "--force", "pod")
	r := h.report(uuid)
	for point, access := range map[string]string{"/volumes/ro": "ro", "/volumes/file": "rw", "/volumes/empty": "rw"} {
		if fields := r.mount(point); fields == nil || !strings.HasPrefix(fields[5], access) {
			t.Errorf("%s: %q, want %s", point, fields, access)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.dir, "pods", uuid, "volumes/empty"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode&0o7777 != 0o1777 || st.Uid != 5 || st.Gid != 6 {
		t.Errorf("empty volume: mode %o, owner %d:%d", st.Mode, st.Uid, st.Gid)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestAFailedStagerIsReported(t *testing.T) {
	h := newHost(t)
	for _, detach := range []string{"--detach=true", "--detach=false"} {
		h.refuse(1, "(exit status 1): stager: manifest: this pod fails", "run", detach, "--name", "fails", "example.com/one")
		h.refuse(1, "(SIGKILL): nothing was logged", "run", detach, "--name", "dies", "example.com/one")
	}
}

func TestForegroundReturnsTheExitStatus(t *testing.T) {
	h := newHost(t)
	cmd := h.command("run", "--json", "--name", "ends", "example.com/one")
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pod podStarted
	if err := json.NewDecoder(out).Decode(&pod); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pod.PID, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Error(err)
	}
	if out := h.run("logs", "ends"); out != "last words\n" {
		t.Errorf("logs after the end: %q", out)
	}
	h.run("rm", "ends")
	h.checkNoPods()
}

// A stager that is killed, or that ends early, says nothing itself.
func TestForegroundSaysThatTheStagerHasEnded(t *testing.T) {
	h := newHost(t)
	for _, test := range []struct {
		signal syscall.Signal
		rm     bool
		code   int
		want   string
	}{
		{unix.SIGKILL, false, 137, "launcher: pod \"ends\": the stager was ended by SIGKILL; launcher logs --stager ends shows its messages\n"},
		{unix.SIGKILL, true, 137, "launcher: pod \"ends\": the stager was ended by SIGKILL\n"},
		{unix.SIGUSR1, false, 3, "launcher: pod \"ends\": the stager ended with exit status 3 before it had written the apps' last states; launcher logs --stager ends shows its messages\n"},
	} {
		cmd := h.command("run", "--json", "--rm="+strconv.FormatBool(test.rm), "--name", "ends", "example.com/one")
		out := must(cmd.StdoutPipe())
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pod podStarted
		if err := json.NewDecoder(out).Decode(&pod); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pod.PID, test.signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != test.code || !strings.HasSuffix(said.String(), test.want) {
			t.Errorf("%s: %v, %q; want exit status %d, %q", test.signal, err, said.String(), test.code, test.want)
		}
		if test.rm {
			continue
		}
		logged := strings.Contains(h.run("logs", "--stager", "ends"), `level=ERROR msg="the stager was ended" signal=SIGKILL`)
		if logged != (test.signal == unix.SIGKILL) {
			t.Errorf("%s: in the stager's log: %v", test.signal, logged)
		}
		h.run("rm", "ends")
	}
	h.checkNoPods()
}

func TestForegroundStopsOnSignals(t *testing.T) {
	h := newHost(t)
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := h.command("run", "--rm", "--json", "--name", "p", "example.com/one")
			out := must(cmd.StdoutPipe())
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			want := 0
			if sig == unix.SIGINT { // a person at the terminal
				want = 130
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != want {
				t.Errorf("%v, want exit status %d", err, want)
			}
			h.checkNoPods()
		})
	}
}

// The run of a pod that restart stops has done its part, with --rm as well: the restart deletes the pod.
func TestARestartEndsTheForeground(t *testing.T) {
	h := newHost(t)
	for _, rm := range []string{"--rm=true", "--rm=false"} {
		cmd := h.command("run", rm, "--json", "--name", "p", "example.com/one")
		out := must(cmd.StdoutPipe())
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		h.run("restart", "p")
		if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "launcher: ") {
			t.Errorf("run %s: %v, %q", rm, err, &said)
		}
		if all := h.ps(); len(all) != 1 || all[0].State != "running" {
			t.Errorf("run %s: %+v", rm, all)
		}
		h.run("rm", "--force", "p")
	}
}

// A restart that is interrupted while the pod stops leaves the pod with its volumes, also a pod that is deleted at its end.
func TestAnInterruptedRestartKeepsThePod(t *testing.T) {
	h := newHost(t)
	h.run("run", "--rm", "--detach", "--name", "stubborn", h.text("pod.json", `{"acKind":"PodManifest","acVersion":"0.8.11",
		"apps":[{"name":"one","image":{"id":"`+h.listed()["example.com/one"].ID+`"}}],"volumes":[{"name":"v","kind":"empty"}]}`))
	d := must(daemon.Open(must(daemon.ReadConfig(filepath.Join(h.dir, "config.json"))), daemon.Options{}))
	pod := must(d.FindPod("stubborn"))
	ctx, cancel := context.WithCancel(t.Context())
	restarted := make(chan error, 1)
	go func() {
		_, err := d.Restart(ctx, pod)
		restarted <- err
	}()
	surroundings.Eventually(t, "the pod stops", func() bool { return h.ps()[0].State == pods.Stopping })
	cancel()
	if err := unix.Kill(h.ps()[0].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	h.waitMonitor(pod.Plan.UUID)
	if all := h.ps(); len(all) != 1 || all[0].State != pods.Exited {
		t.Errorf("pods %+v", all)
	}
	if _, err := os.Stat(filepath.Join(pod.Dir, "volumes/v")); err != nil {
		t.Error(err)
	}
	if _, err := d.Restart(ctx, pod); !errors.Is(err, context.Canceled) {
		t.Errorf("a restart that does not begin: %v", err)
	}
}

// A pod whose UUID cannot be printed is stopped.
func TestAPodWhoseUUIDCannotBePrintedIsStopped(t *testing.T) {
	h := newHost(t)
	read, broken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	defer broken.Close()
	full := must(os.OpenFile("/dev/full", os.O_WRONLY, 0))
	defer full.Close()
	for _, detach := range []string{"--detach=true", "--detach=false"} {
		for words, out := range map[string]*os.File{"broken pipe\n": broken, "no space left on device\n": full} {
			cmd := h.command("run", "--json", detach, "--name", "p", "example.com/one")
			var stderr strings.Builder
			cmd.Stdout, cmd.Stderr = out, &stderr
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(stderr.String(), words) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("%s: %v, stderr %q", detach, err, stderr.String())
			}
			h.checkNoPods()
		}
	}
}

// A warning that nobody reads is written when the pod has been made: it must not end the launcher before the pod.
func TestAWarningThatNobodyReadsLeavesNoDeadPod(t *testing.T) {
	h := newHost(t)
	two := h.image("two.aci", strings.Replace(appManifest, "example.com/one", "example.com/two", 1))
	h.sign(two, newKey(t))
	h.run("image", "import", two)
	if r := h.try("run", "--detach", "--name", "p", "example.com/two"); r.code != 0 || strings.Count(r.stderr, "launcher: warning: ") != 1 {
		t.Fatalf("want a warning: %+v", r)
	}
	h.run("rm", "--force", "p")
	read, broken, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	defer broken.Close()
	for _, detach := range []string{"--detach=true", "--detach=false"} {
		cmd := h.command("run", "--json", detach, "--name", "p", "example.com/two")
		cmd.Stdout, cmd.Stderr = broken, broken
		if cmd.Run() == nil {
			t.Errorf("%s: exit status 0 without an output", detach)
		}
		h.checkNoPods()
	}
	cmd := h.command("run", "--detach", "--name", "p", "example.com/two")
	cmd.Stderr = broken
	if uuid, err := cmd.Output(); err != nil || len(uuid) == 0 {
		t.Errorf("with stdout: %q, %v", uuid, err)
	}
	h.run("rm", "--force", "p")
}

func TestDetachedPodThatEndsIsKeptForGC(t *testing.T) {
	h := newHost(t)
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "ends", "example.com/one"))
	if err := unix.Kill(h.ps()[0].PID, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	h.waitMonitor(uuid)
	all := h.ps()
	if len(all) != 1 || all[0].State != "exited" || all[0].Exit.Code != 3 {
		t.Errorf("ps: %+v", all)
	}
	for args, want := range map[string]string{
		"logs ends":                   "last words\n",
		"logs --follow --tail 1 ends": "last words\n",
		"logs --json ends":            `{"time":"2026-11-21T03:00:01.000000000Z","stream":"stdout","app":"one","message":"last words"}` + "\n",
	} {
		if out := h.run(strings.Fields(args)...); out != want {
			t.Errorf("%s: %q, want %q", args, out, want)
		}
	}
	h.run("gc")
	h.checkNoPods()
}

// A stager image that does not say where its logs are runs pods; only their logs
// are lost when they have ended.
func TestAStagerWithoutALogFolderRuns(t *testing.T) {
	h := bareHost(t)
	manifest := strings.Replace(fmt.Sprintf(stagerFormat, ""), names.LogDirAnnotation, "example.com/other", 1)
	h.run("image", "import", h.stagerImageOf("stager.aci", manifest, h.key), h.image("one.aci", appManifest))
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", "ends", "example.com/one"))
	h.run("logs", "ends")
	if err := unix.Kill(h.ps()[0].PID, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	h.waitMonitor(uuid)
	want := `launcher: logs of pod "ends" were not kept: the stager image has no annotation "` + names.LogDirAnnotation + "\"\n"
	for _, args := range [][]string{{"logs", "ends"}, {"logs", "--json", "ends"}} {
		if r := h.try(args...); r.code != 1 || r.stderr != want || r.stdout != "" {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
	// A pod of a launcher that knew the folder.
	kept := filepath.Join(h.dir, "pods", uuid, "logs/one")
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.WriteFile(filepath.Join(kept, "0000000001.log"), []byte("2026-11-21T03:00:01.000000000Z stdout F old words\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out := h.run("logs", "ends"); out != "old words\n" {
		t.Errorf("logs: %q", out)
	}
	h.run("gc")
}

// waitMonitor waits until the pod has no monitor.
func (h *host) waitMonitor(uuid string) {
	h.t.Helper()
	lock, err := os.OpenFile(filepath.Join(h.dir, "pods", uuid, "lock"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	defer lock.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLKW, &whole); err != nil {
		h.t.Fatal(err)
	}
}

// startSlow begins to start the pod "slow", whose stager is not ready until it is sent SIGUSR1.
func (h *host) startSlow() (cmd *exec.Cmd, uuid string) {
	h.t.Helper()
	gate := h.t.TempDir()
	if err := unix.Mkfifo(filepath.Join(gate, "fifo"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	cmd = h.command("run", "--detach", "--name", "slow", "--volume", "gate="+gate, "example.com/one")
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	must(os.ReadFile(filepath.Join(gate, "fifo")))
	// The stager may be here before its monitor has saved its PID.
	for range 1000 {
		if pod := h.ps()[0]; pod.PID != 0 {
			return cmd, pod.UUID
		}
	}
	h.t.Fatal("the monitor has not saved the stager's PID")
	return nil, ""
}

func TestCallInsAreRefusedDuringTheStart(t *testing.T) {
	h := newHost(t)
	cmd, uuid := h.startSlow()
	state := filepath.Join(h.dir, "pods", uuid, "state.json")
	known := must(os.ReadFile(state))
	// As it is before the stager has been forked.
	if err := os.WriteFile(state, []byte(`{"phase":"starting"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, args := range map[int][]string{1: {"status", "slow"}, 125: {"exec", "slow", "--", "true"}} {
		if r := h.try(args...); r.code != code || !strings.Contains(r.stderr, `pod "slow" is starting`) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if err := os.WriteFile(state, known, 0o600); err != nil {
		t.Fatal(err)
	}
	h.run("stop", "slow")
	_ = cmd.Wait()
}

func TestAPodThatLeavesAProcessIsRemoved(t *testing.T) {
	h := newHost(t)
	if r := h.try("run", "--rm", "--name", "leaves-a-child", "example.com/one"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	h.checkNoPods()
}

// waitGone waits until the process has ended.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	// EINVAL is what kernels before 6.15 say of one that is being reaped.
	if err == unix.ESRCH || err == unix.EINVAL {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil {
		t.Fatal(err)
	}
}

// killMonitor does what a crash would, and returns when monitor and stager are gone.
func (h *host) killMonitor(uuid string) {
	h.t.Helper()
	var state struct{ Monitor, Stager struct{ PID int } }
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(h.dir, "pods", uuid, "state.json"))), &state); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Kill(state.Monitor.PID, unix.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	waitGone(h.t, state.Monitor.PID)
	waitGone(h.t, state.Stager.PID)
}

func TestGCRemovesThePodOfAKilledMonitor(t *testing.T) {
	h := newHost(t)
	dead := strings.TrimSpace(h.run("run", "--detach", "--name", "dead", "example.com/one"))
	h.run("run", "--detach", "--name", "alive", "example.com/one")
	h.killMonitor(dead)
	if all := h.ps(); len(all) != 2 || all[0].State != "dead" || all[1].State != "running" {
		t.Errorf("ps: %+v", all)
	}
	if r := h.try("status", "dead"); r.code != 1 || !strings.Contains(r.stderr, `pod "dead" is dead`) {
		t.Errorf("status: %+v", r)
	}
	var running []*exec.Cmd
	for range 4 {
		cmd := h.command("gc")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("one of several gc: %v", err)
		}
	}
	if all := h.ps(); len(all) != 1 || all[0].Name != "alive" {
		t.Errorf("ps after gc: %+v", all)
	}
	h.run("rm", "--force", "alive")
}

// A name that is made for a pod is one that no live pod has, also if several are made at once.
func TestNamesAreMadeFree(t *testing.T) {
	h := newHost(t)
	var running []*exec.Cmd
	for range 3 {
		cmd := h.command("run", "--detach", "example.com/one")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	names := map[string]bool{}
	for _, pod := range h.ps() {
		names[pod.Name] = true
	}
	if len(names) != 3 || !names["one"] || !names["one-2"] || !names["one-3"] {
		t.Errorf("names %v", names)
	}
	if r := h.try("run", "--detach", "--name", "one-2", "example.com/one"); r.code != 1 || !strings.Contains(r.stderr, "name already used by pod ") || !strings.Contains(r.stderr, "; choose another with --name\n") {
		t.Errorf("%+v", r)
	}
	h.run("rm", "--force", "one", "one-2", "one-3")
}

func TestStopClearsADeadPod(t *testing.T) {
	h := newHost(t)
	h.killMonitor(strings.TrimSpace(h.run("run", "--detach", "--name", "p", "example.com/one")))
	h.run("stop", "p")
	if all := h.ps(); len(all) != 1 || all[0].State != "exited" || *all[0].Code != 137 {
		t.Errorf("ps: %+v", all)
	}
	h.run("rm", "p")
	h.checkNoPods()
}

func TestGCRemovesHalfMadePods(t *testing.T) {
	h := newHost(t)
	h.run("gc")
	const empty, unlocked = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	for _, name := range []string{empty, unlocked} {
		if err := os.Mkdir(filepath.Join(h.dir, "pods", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "pods", unlocked, "plan.json.new"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.run("gc")
	h.run("gc")
	h.checkNoPods()
}

func TestGCReportsAReadOnlyStore(t *testing.T) {
	h := newHost(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "pods"), 0o700), os.Mkdir(filepath.Join(dir, "images"), 0o700),
		unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	h.text("config.json", fmt.Sprintf(`{"podsDirectory":"%s/pods","imagesDirectory":"%s/images"}`, dir, dir))
	h.refuse(1, "read-only file system", "gc")
}

func TestGCLeavesOthersFoldersAlone(t *testing.T) {
	h := newHost(t)
	h.run("gc")
	others := []string{"backup", "00000000-0000-4000-8000-00000000000A", "{00000000-0000-4000-8000-000000000001}", "lost+found"}
	for _, name := range others {
		dir := filepath.Join(h.dir, "pods", name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if out := h.run("gc"); out != "" {
		t.Errorf("gc: %s", out)
	}
	for _, name := range others {
		dir := filepath.Join(h.dir, "pods", name)
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "precious" {
			t.Errorf("%s: %v, %v", name, left, err)
		}
		_ = os.RemoveAll(dir)
	}
}

func TestRunRefusesWrongArguments(t *testing.T) {
	h := newHost(t)
	tests := []struct {
		name, words string
		code        int
		args        []string
	}{
		{"no arguments", "want POD.json or IMAGE", 2, []string{"run"}},
		{"no such image", `no such image: "x"`, 1, []string{"run", "x"}},
		{"no such file", "pod.json: no such file", 1, []string{"run", "pod.json"}},
		{"not JSON", "pod", 1, []string{"run", h.text("bad.json", "{")}},
		{"image missing", `app "a": no such image: "example.com/none,version=9"`, 1, []string{"run", h.text("none.json",
			`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/none","labels":[{"name":"version","value":"9"}]}}]}`)}},
		{"owner of 33 bits", `volume "v": uid 4294967301 is not within 0 to 4294967294`, 1, []string{"run", h.text("owner.json",
			`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"}}],"volumes":[{"name":"v","kind":"empty","uid":4294967301}]}`)}},
		{"volume without a path", "or NAME=/PATH", 2, []string{"run", "--volume", "x", "example.com/one"}},
		{"volume of an odd name", `run: invalid argument "a b=/tmp" for "-v, --volume" flag: name "a b": ACName must contain`, 2, []string{"run", "--volume", "a b=/tmp", "example.com/one"}},
		{"volume given twice", `run: invalid argument "v=/b" for "-v, --volume" flag: volume "v" is given twice`, 2, []string{"run", "--volume", "v=/a", "--volume", "v=/b", "example.com/one"}},
		{"volume that no app mounts", `pod "one": volume "gates": no app has a mount point of that name; known mount points: file, gate, v`, 1, []string{"run", "--volume", "gates=/tmp", "example.com/one"}},
		{"volume source not in UTF-8", `run: invalid argument "v=/\xff" for "-v, --volume" flag: the path is not UTF-8`, 2, []string{"run", "--volume", "v=/\xff", "example.com/one"}},
		{"pod not in UTF-8", `bytes.json: not UTF-8`, 1, []string{"run", h.text("bytes.json",
			`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":"`+h.listed()["example.com/one"].ID+`"}}],"volumes":[{"name":"v","kind":"host","source":"/`+"\xff"+`"}]}`)}},
		{"path missing", `pod "one": mount /nowhere at /data: open /nowhere: no such file`, 1, []string{"run", "--volume", "/nowhere:/data", "example.com/one"}},
		{"volume source missing", `volume "v": open /nowhere: no such file`, 1, []string{"run", "--volume", "v=/nowhere", "example.com/one"}},
		{"arguments without dashes", `unexpected "sh"`, 2, []string{"run", "example.com/one", "sh"}},
		{"arguments not in UTF-8", `run: argument "\xff" is not UTF-8`, 2, []string{"run", "example.com/one", "--", "\xff"}},
		{"command not in UTF-8", `exec: argument "a\xff" is not UTF-8`, 2, []string{"exec", "p", "--", "echo", "a\xff"}},
		{"unknown flag", "run: unknown flag: --bogus; ", 2, []string{"run", "--bogus", "example.com/one"}},
		{"unknown network", "--net host", 2, []string{"run", "--net", "nowhere", "example.com/one"}},
		{"name of two lines", `--name "p\nforged": want letters`, 2, []string{"run", "--name", "p\nforged", "example.com/one"}},
		{"name too long", "xxx…: want letters", 2, []string{"run", "--name", strings.Repeat("x", 1<<16), "example.com/one"}},
		{"name like a path", "--name ../p: want letters", 2, []string{"run", "--name", "../p", "example.com/one"}},
		{"unknown command", `unknown command "nonsense"`, 2, []string{"nonsense"}},
		{"unknown pod", `no such pod: "p"`, 1, []string{"stop", "p"}},
		{"image rm unknown", `no such image: "x"`, 1, []string{"image", "rm", "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { h.refuse(tt.code, tt.words, tt.args...) })
	}
}

func TestRunWithoutPrivilegesIsRefused(t *testing.T) {
	h := newHost(t)
	cmd := h.command("run", "example.com/one")
	cmd.Env = append(cmd.Env, "HOME=/")
	// The test binary itself must be within reach of another user.
	copied := filepath.Join(os.TempDir(), filepath.Base(t.TempDir())+h.cgroup)
	data := must(os.ReadFile(cmd.Path))
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(copied)
	cmd.Path, cmd.Args = copied, []string{copied, "--state", "/nonexistent", "run", "example.com/one"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := h.finish(cmd); r.code != 1 || r.stderr != "launcher: run: only root can start a pod\n" {
		t.Errorf("%+v", r)
	}
	h.run("gc") // which makes the folder of pods
	ps := h.command("ps")
	ps.Path, ps.Args = copied, []string{copied, "--state", h.dir, "ps"}
	ps.Dir, ps.SysProcAttr = cmd.Dir, cmd.SysProcAttr
	if r := h.finish(ps); r.code != 1 || !strings.HasSuffix(r.stderr, ": permission denied\n") {
		t.Errorf("%+v", r)
	}
}

func TestNamesAreUnique(t *testing.T) {
	h := newHost(t)
	h.run("run", "--detach", "--name", "p", "example.com/one")
	defer h.run("rm", "--force", "p")
	if r := h.try("run", "--name", "p", "example.com/one"); r.code != 1 || !strings.Contains(r.stderr, "name already used by pod ") || !strings.Contains(r.stderr, "; choose another with --name\n") {
		t.Errorf("%+v", r)
	}
	old := strings.TrimSpace(h.run("run", "--detach", "--name", "old", "example.com/one"))
	h.run("stop", "old")
	h.run("run", "--detach", "--name", "old", "example.com/one")
	if r := h.try("restart", old); r.code != 1 || !strings.Contains(r.stderr, "name already used by pod ") || strings.Contains(r.stderr, "--name") {
		t.Errorf("restart has no --name: %+v", r)
	}
	h.run("rm", "--force", "old")
	if r := h.try("image", "rm", "example.com/one"); r.code != 1 || !strings.Contains(r.stderr, `in use by pod "p"`) {
		t.Errorf("%+v", r)
	}
}

// Between the look at the images and the pod that uses them none is removed.
func TestRunPinsItsImages(t *testing.T) {
	h := newHost(t)
	h.run("ps")
	h.run("gc") // which makes the folder of pods
	creating := must(os.OpenFile(filepath.Join(h.dir, "pods/.lock"), os.O_RDWR|os.O_CREATE, 0o600))
	defer creating.Close()
	images := must(os.Open(filepath.Join(h.dir, "images")))
	defer images.Close()
	if err := unix.Flock(int(creating.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := h.command("run", "--detach", "--name", "p", "example.com/one")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	surroundings.Eventually(t, "the images are pinned while the pod is made", func() bool {
		pinned := unix.Flock(int(images.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
		if !pinned {
			if err := unix.Flock(int(images.Fd()), unix.LOCK_UN); err != nil {
				t.Error(err)
			}
		}
		return pinned
	})
	_ = creating.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	h.run("rm", "--force", "p")
}

func TestThePodHasTheHostsNetworkIfAsked(t *testing.T) {
	h := newHost(t)
	id := must(json.Marshal(h.listed()["example.com/one"].ID))
	isolated := h.text("isolated.json", fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":%s}}],
		"isolators":[{"name":"os/linux/namespaces","value":{"net":"host"}}]}`, id))
	for name, args := range map[string][]string{"option": {"--net", "host", "example.com/one"}, "isolator": {isolated}} {
		t.Run(name, func(t *testing.T) {
			h.run(append([]string{"run", "--detach", "--name", "p"}, args...)...)
			defer h.run("rm", "--force", "p")
			theirs := must(os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.ps()[0].PID)))
			if ours := must(os.Readlink("/proc/self/ns/net")); ours != theirs {
				t.Errorf("network namespace %s, the host's is %s", theirs, ours)
			}
		})
	}
}

// listed is `image list` by name.
func (h *host) listed() map[string]daemon.Image {
	h.t.Helper()
	byName := make(map[string]daemon.Image)
	for _, info := range jsonLines[daemon.Image](h.t, h.run("image", "list", "--json")) {
		byName[info.Name] = info
	}
	return byName
}
