package tests

import (
	"bufio"
	"bytes"
	"crypto/sha512"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// sleeper starts a pod of one app that only sleeps.
func sleeper(b *harness.Machine) *harness.Pod {
	return b.Up("pod", harness.PodOf(suite.Shell("app", "exec sleep 1000")))
}

func TestRunWorksAsTheDaemonCallsIt(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	env := []harness.NameValue{{Name: "A", Value: "$HOME `id` 'q' \"q\" \\n a=b\nnext "}, {Name: "X.y-z", Value: ""}}
	for _, tt := range []struct {
		name     string
		settings settings
		output   string
		code     int
	}{
		{"nothing of our own on success", settings{Exec: []string{"/bin/echo", `{"json": true}`}, User: "0", Group: "0"}, "{\"json\": true}\n", 0},
		{"literal arguments", settings{Exec: []string{"/bin/printf", "<%s>", "$PATH", "*", "", "a "}, User: "0", Group: "0"}, "<$PATH><*><><a >", 0},
		{"looked up in the default PATH", settings{Exec: []string{"true"}, User: "0", Group: "0"}, "", 0},
		{
			"looked up in the given PATH",
			settings{Exec: []string{"true"}, User: "0", Group: "0", Environment: []harness.NameValue{{Name: "PATH", Value: "/tmp"}}},
			"run: start command in app \"app\": exec true: no such file or directory\n", 127,
		},
		{"not found", settings{Exec: []string{"/no"}, User: "0", Group: "0"}, "run: start command in app \"app\": exec /no: no such file or directory\n", 127},
		{"not executable", settings{Exec: []string{"/etc/passwd"}, User: "0", Group: "0"}, "run: start command in app \"app\": exec /etc/passwd: permission denied\n", 126},
		{"a folder", settings{Exec: []string{"/etc"}, User: "0", Group: "0"}, "run: start command in app \"app\": exec /etc: permission denied\n", 126},
		{"exit status", asRoot("exit 255"), "", 255},
		{"signal", asRoot("kill -USR1 $$"), "", 128 + int(unix.SIGUSR1)},
		{"user by name", settings{Exec: []string{"/bin/id"}, User: "user", Group: "nobody", SupplementaryGID: []int{5, 6}}, "uid=1000(user) gid=65534(nobody) groups=5,6\n", 0},
		{"user and group of a file", settings{Exec: []string{"/bin/id"}, User: "/etc/passwd", Group: "/etc/passwd"}, "uid=0(root) gid=0(root)\n", 0},
		{"working directory", settings{Exec: []string{"pwd"}, User: "0", Group: "0", WorkingDirectory: "/etc"}, "/etc\n", 0},
		{"root is the default working directory", settings{Exec: []string{"pwd"}, User: "0", Group: "0"}, "/\n", 0},
		{"environment is literal", settings{Exec: []string{"/bin/sh", "-c", `printf %s "$A"`}, User: "0", Group: "0", Environment: env}, env[0].Value, 0},
		{"three descriptors", asRoot("exec ls /proc/self/fd"), "0\n1\n2\n3\n", 0}, // 3 is the folder
		{"tty on pipes", settings{Exec: []string{"/bin/sh", "-c", "tty; stty size; exit 5"}, User: "0", Group: "0", TTY: true}, "/dev/pts/0\r\n24 80\r\n", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output, code := run(p, "app", tt.settings)
			if diff := cmp.Diff(tt.output, output); diff != "" || code != tt.code {
				t.Errorf("exit status %d, want %d, output (-want +have):\n%s", code, tt.code, diff)
			}
		})
	}
	for _, app := range []string{"nobody", "", "../app"} {
		output, code := run(p, app, asRoot("true"))
		if code != 125 || !strings.HasPrefix(output, "run: ") || strings.Count(output, "\n") != 1 {
			t.Errorf("run in app %q: exit status %d, %q", app, code, output)
		}
	}
}

// A command of run has the variables of its settings, and those of the app that its settings do not have.
func TestRunHasTheVariablesOfItsSettings(t *testing.T) {
	t.Parallel()
	app := changed(suite.Shell("app", "exec sleep 1000"), func(s *harness.SectionDoc) {
		s.Environment = []harness.NameValue{{Name: "GIVEN", Value: "app"}, {Name: "OWN", Value: "app"}}
	})
	p := suite.NewMachine(t).Up("pod", harness.PodOf(app))
	out, code := run(p, "app", settings{Exec: []string{"env"}, User: "0", Group: "0", Environment: []harness.NameValue{{Name: "GIVEN", Value: "1"}}})
	var got []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, "=")
		if name != "AC_METADATA_URL" {
			name += "=" + value
		}
		got = append(got, strings.TrimSpace(name))
	}
	want := []string{
		"GIVEN=1", "AC_APP_NAME=app", "container=" + names.Executor, "OWN=app", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"AC_METADATA_URL", "HOME=/",
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 0 {
		t.Errorf("exit status %d:\n%s", code, diff)
	}
}

// largeEnvironment has more bytes than settings of run may have, characters that JSON escapes, and a variable as long as
// the kernel takes.
func largeEnvironment() []harness.NameValue {
	env := []harness.NameValue{{Name: "LONG", Value: strings.Repeat("<", 128<<10-len("LONG=")-1)}}
	for n := range 25000 {
		env = append(env, harness.NameValue{Name: fmt.Sprintf("SVC_%d_PORT", n), Value: "tcp://10.96.0.1:80?a&b<c>d"})
	}
	return env
}

// What the kernel has taken at the app's start, its event handlers have, and each command of run and of the launcher.
func TestCommandsHaveALargeEnvironment(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"direct", "libcontainer"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t, harness.StagerConfig(`{"runtime": "`+runtime+`", "gracePeriod": "1s"}`))
			dir := b.Folder("shared", 0o777)
			const show = `echo "${#LONG} $(env | grep -c ^SVC_) $SVC_7_PORT $MORE"`
			app := changed(suite.Shell("app", "cat /before; exec sleep 1000"), func(s *harness.SectionDoc) {
				s.Environment = largeEnvironment()
				s.EventHandlers = []harness.HandlerDoc{
					{Name: "pre-start", Exec: []string{"/bin/sh", "-c", show + " >/before"}},
					{Name: "post-stop", Exec: []string{"/bin/sh", "-c", show + " >/shared/after"}},
				}
			})
			p := b.Up("pod", harness.PodOf(app).HostVolume("v", dir, "/shared"))
			const want = "131066 25000 tcp://10.96.0.1:80?a&b<c>d"
			p.Sees("app", want+" \n")
			set := asRoot(show)
			set.Environment = []harness.NameValue{{Name: "SVC_7_PORT", Value: "other"}, {Name: "MORE", Value: "more"}}
			if out, code := run(p, "app", set); out != "131066 25000 other more\n" || code != 0 {
				t.Errorf("run: exit status %d, %.200q", code, out)
			}
			if out := b.Must("exec", "--env", "MORE=more", p.Name, "--", "/bin/sh", "-c", show); out != want+" more\n" {
				t.Errorf("exec: %.200q", out)
			}
			terminal := b.Command("exec", "--tty", p.Name, "--", "/bin/sh", "-c", "echo $TERM $SVC_7_PORT")
			terminal.Env = append(terminal.Env, "TERM=vt100")
			if r := harness.Finish(t, terminal); r.Stdout != "vt100 tcp://10.96.0.1:80?a&b<c>d\r\n" {
				t.Errorf("exec with a terminal: %.200v", r)
			}
			brackets := strings.Repeat("<", 100<<10)
			args := []string{"exec", "--env", "A=" + brackets, "--env", "B=" + brackets, p.Name, "--", "/bin/sh", "-c", "echo ${#A} ${#B} ${#1}", "sh", brackets}
			if out := b.Must(args...); out != "102400 102400 102400\n" {
				t.Errorf("exec with large variables and words: %.200q", out)
			}
			p.Stop()
			if have, err := os.ReadFile(filepath.Join(dir, "after")); err != nil || string(have) != want+" \n" {
				t.Errorf("post-stop: %.200q, %v", have, err)
			}
		})
	}
}

// run waits at most 10 s for settings that never come or never end.
func TestRunGivesUpWithoutSettings(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	for name, text := range map[string]string{"none": "", "without end": `{"exec":["/bin/sh","-c","echo started"],"user":"0","group":"0"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, write := settingsPipe(p, "app")
			if _, err := io.WriteString(write, text); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			r := harness.Finish(t, cmd)
			if took := time.Since(begin); took < 9*time.Second || took > 20*time.Second {
				t.Errorf("it took %s, want 10 s", took)
			}
			if r.Code != 125 || !strings.HasPrefix(r.Stderr, "run: ") || r.Stdout != "" {
				t.Errorf("exit status %d, %q, %q", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// A caller that is killed takes its command and the command's session with it.
func TestKilledCallerTakesItsCommand(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	up := b.SignalPipe(filepath.Join(dir, "up"))
	p := b.Up("pod", harness.PodOf(suite.Shell("app", "exec sleep 1000")).HostVolume("sync", dir, "/sync"))
	before := p.Processes()
	for _, tty := range []bool{false, true} {
		cmd, write := settingsPipe(p, "app")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s := asRoot("trap '' TERM HUP; (trap '' TERM HUP; sleep 1000) & (sleep 1000 | sleep 1000) & echo up >/sync/up; sleep 1000; sleep 1000")
		s.TTY = tty
		feed(t, write, s)
		up.Line()
		// A plain call is made in C (package plain), which has one thread.
		threads, err := os.ReadDir(filepath.Join("/proc", pidOf(cmd), "task"))
		if err != nil || (len(threads) > 1) != tty {
			t.Errorf("tty %t: the call has %d threads, %v", tty, len(threads), err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		harness.Eventually(t, "the session is gone", func() bool { return len(p.Processes()) == len(before) })
	}
}

// run ends with its command, even if a child of the command keeps the output open.
func TestRunDoesNotWaitForBackgroundChildren(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	for _, tty := range []bool{false, true} {
		cmd, write := settingsPipe(p, "app")
		out, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = theirs, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		s := asRoot("setsid sleep 1000 & echo ok; exit 3")
		s.TTY = tty
		feed(t, write, s)
		_ = cmd.Wait()
		line, err := bufio.NewReader(out).ReadString('\n')
		if code := cmd.ProcessState.ExitCode(); code != 3 || strings.TrimSpace(line) != "ok" || err != nil {
			t.Errorf("tty %t: exit status %d, output %q, %v", tty, code, line, err)
		}
	}
	succeeds(p, "app", `[ -z "$(ps -o stat | grep Z)" ]`)
}

// pattern returns a stream of a size whose content does not repeat.
func pattern(size int64) io.Reader {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewWriterSize(w, 1<<16)
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(lines, "%015d\n", i); err != nil {
				return
			}
		}
	}()
	return io.LimitReader(r, size)
}

func TestExecPassesAHundredMegabytes(t *testing.T) {
	t.Parallel()
	p := sleeper(suite.NewMachine(t))
	const size = 100 << 20
	sent, back := sha512.New(), sha512.New()
	cmd := p.Command("exec", "--interactive", p.Name, "app", "--", "cat")
	cmd.Stdin = io.TeeReader(pattern(size), sent)
	cmd.Stdout = back
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if !bytes.Equal(sent.Sum(nil), back.Sum(nil)) {
		t.Error("what came back is not what was sent")
	}
}

// Fifty call-ins of every kind run at once, while apps end.
func TestFiftyCallInsRunAtOnce(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o777)
	apps := []harness.AppDoc{suite.Shell("stays", "echo up; exec sleep 1000")}
	for i := range 5 {
		apps = append(apps, suite.Shell(fmt.Sprintf("ends%d", i), "read line </sync/go"))
	}
	release := b.SignalPipe(filepath.Join(dir, "go"))
	p := b.Up("pod", harness.PodOf(apps...).HostVolume("sync", dir, "/sync"))
	p.Sees("stays", "up")
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if i == 25 {
				if _, err := release.File.WriteString(strings.Repeat("go\n", 5)); err != nil {
					t.Error(err)
				}
			}
			fiftieth(t, p, i)
		})
	}
	all.Wait()
	for _, app := range apps[1:] {
		// Its shell may have read another one's line, and waits.
		if _, err := release.File.WriteString("go\n"); err != nil {
			t.Error(err)
		}
		if code, _ := p.Exited(app.Name); code != 0 {
			t.Errorf("%s ended with %d", app.Name, code)
		}
	}
}

// fiftieth makes one call-in of each kind.
func fiftieth(t *testing.T, p *harness.Pod, i int) {
	out, code := run(p, "stays", asRoot(fmt.Sprintf("echo %d; exit %d", i, i)))
	if code != i || out != fmt.Sprintf("%d\n", i) {
		t.Errorf("run %d: exit status %d, %q", i, code, out)
	}
	if s := p.Status(); len(s) != 6 || s["stays"].Exited {
		t.Errorf("status %+v", s)
	}
	if text := p.Logs("stays"); text != "up\n" {
		t.Errorf("logs %q", text)
	}
	out, code = run(p, fmt.Sprintf("ends%d", i%5), asRoot("true"))
	if gone := code == 125 || code == 137; code != 0 && !gone {
		t.Errorf("run in an app that ends: exit status %d, %q", code, out)
	}
}
