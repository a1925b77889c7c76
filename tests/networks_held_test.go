package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/names"
)

// late is a plugin whose `add` connects the pod when the test lets it.
const late = `#!/bin/busybox sh
/bin/busybox cat >/dev/null
echo "$0 $*" >>/var/lib/network/calls
case ${0##*/} in add)
	until [ -e /var/lib/network/go ]; do /bin/busybox sleep 0.01; done
	[ ! -e /var/lib/network/fails ] || { echo "no more addresses" >&2; exit 3; }
	/bin/busybox nsenter --net="$1" /bin/busybox ip link add eth0 type bridge || exit 1
	echo '{"ip4": {"ip": "10.0.0.9/24"}, "dns": {"nameservers": ["192.0.2.53"]}}' ;;
esac
`

// A heldPod is a pod whose stager runs, and whose network's plugin does not let it be connected yet.
type heldPod struct {
	*netMachine
	cmd    *exec.Cmd // launcher run
	output bytes.Buffer
	ended  chan struct{}
	err    error // of cmd, once ended is closed
	uuid   string
}

// hold starts a pod with the plugin late, and returns when the plugin waits and the pod's stager has logged a word.
func hold(t *testing.T, word string, doc podDoc) *heldPod {
	t.Helper()
	p := newHeldPod(t, doc)
	eventually(t, "the stager logs "+word, func() bool {
		log, _ := os.ReadFile(filepath.Join(p.pods, p.uuid, "stager.log"))
		return strings.Contains(string(log), word)
	})
	return p
}

// newHeldPod starts a pod with the plugin late, and returns when the plugin waits.
func newHeldPod(t *testing.T, doc podDoc, options ...option) *heldPod {
	t.Helper()
	m := newScriptMachineWith(t, late, options, "late")
	p := &heldPod{netMachine: m, ended: make(chan struct{})}
	p.cmd = m.command("run", "--name", "p", "--net", "late", m.write("p.json", doc))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // if it has not ended
		p.let("go")
		p.wait()
	})
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	eventually(t, "the plugin waits", func() bool { return strings.Contains(m.calls("late"), "/add") })
	m.layersAreNow() // the plugin's image is new in the store
	for _, info := range m.ps() {
		if info.Name == "p" {
			p.uuid = info.UUID
		}
	}
	return p
}

// let makes a file that the plugin looks at.
func (p *heldPod) let(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.networks, "late/state", name), nil, 0o600); err != nil {
		p.t.Error(err)
	}
}

// wait waits for the launcher's end.
func (p *heldPod) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Error("the launcher does not end")
	}
}

// failed checks that the launch has failed with an error of one line, and that nothing of the pod is left.
func (p *heldPod) failed(words ...string) {
	p.t.Helper()
	p.wait()
	text := p.output.String()
	for _, word := range words {
		if p.err == nil || !strings.Contains(text, word) || strings.Count(text, "\n") != 1 {
			p.t.Errorf("%v, %q; want one line with %q", p.err, text, word)
		}
	}
	if all := p.ps(); len(all) != 0 {
		p.t.Errorf("left: pods %+v", all)
	}
	if calls := p.calls("late"); strings.Count(calls, "/del") != 1 {
		p.t.Errorf("calls %q, want one of del", calls)
	}
}

// The stager starts while the plugin connects the pod. Its apps run afterwards, with the network's name servers, unless a volume is in
// their place.
func TestAPodStartsWhileItsNetworksAreConnected(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	if err := os.WriteFile(own, []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	doc := podOf(
		shell("a", "cat /etc/resolv.conf; touch /out/ran; exec sleep 1000"),
		shell("b", "cat /etc/resolv.conf; exec sleep 1000"),
	).hostVolume("out", dir, "/out")
	doc.Volumes = append(doc.Volumes, volumeDoc{Name: "own", Kind: "host", Source: own})
	doc.Apps[1].Mounts = append(doc.Apps[1].Mounts, mountDoc{"own", "/etc/resolv.conf"})
	p := hold(t, "root file systems", doc)
	ran := filepath.Join(dir, "ran")
	eventually(t, "the apps' containers are made", func() bool { return len(p.inCgroup("/apps/a")) > 0 && len(p.inCgroup("/apps/b")) > 0 })
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an app runs before the network is there: %v", err)
	}
	p.let("go")
	p.writes("a", "nameserver 192.0.2.53\n")
	p.writes("b", "nameserver 192.0.2.1\n")
	eventually(t, "app a has written to its volume", func() bool { _, err := os.Stat(ran); return err == nil })
}

// inCgroup returns the processes in one of the pod's cgroups.
func (p *heldPod) inCgroup(cgroup string) []int {
	var pids []int
	for _, pid := range p.processes() {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if strings.Contains(string(groups), p.uuid+cgroup) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// writes checks what an app writes.
func (p *heldPod) writes(app, want string) {
	p.t.Helper()
	got := ""
	eventually(p.t, "app "+app+" writes", func() bool {
		got = p.launcher("logs", "p", app).stdout
		return strings.HasSuffix(got, "\n")
	})
	if got != want {
		p.t.Errorf("app %s writes %q, want %q", app, got, want)
	}
}

// The kernel parameters of the network's interfaces are set when those are there.
func TestKernelParametersOfAPodsInterfacesAreSet(t *testing.T) {
	doc := podOf(shell("a", "cat /proc/sys/net/ipv4/conf/eth0/forwarding; exec sleep 1000"))
	doc.Isolators = []any{isolator("os/unix/sysctl", map[string]string{"net.ipv4.conf.eth0.forwarding": "1"})}
	p := hold(t, "msg=stager", doc)
	p.let("go")
	p.writes("a", "1\n")
}

func TestAPodWhoseNetworkFailsMeanwhileHasRunNothing(t *testing.T) {
	dir := t.TempDir()
	app := shell("a", "touch /out/ran")
	app.App.EventHandlers = []handlerDoc{{"pre-start", []string{"/bin/touch", "/out/began"}}, {"post-stop", []string{"/bin/touch", "/out/ended"}}}
	p := hold(t, "root file systems", podOf(app).hostVolume("out", dir, "/out"))
	p.let("fails")
	p.let("go")
	p.failed(`network "late": add: exit status 3: no more addresses`)
	if files, err := filepath.Glob(dir + "/*"); err != nil || len(files) > 0 {
		t.Errorf("the pod has run what made %q, %v", files, err)
	}
	p.checkEvents(p.events(), "created p", "removed p")
}

func TestAPodThatIsStoppedMeanwhileHasRunNothing(t *testing.T) {
	dir := t.TempDir()
	p := hold(t, "root file systems", podOf(shell("a", "touch /out/ran")).hostVolume("out", dir, "/out"))
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.failed(`launcher: launch pod "p": `)
	if files, err := filepath.Glob(dir + "/*"); err != nil || len(files) > 0 {
		t.Errorf("the pod has run what made %q, %v", files, err)
	}
}

func TestALauncherThatIsKilledMeanwhileTakesItsStagerWithIt(t *testing.T) {
	p := hold(t, "root file systems", podOf(shell("a", "exec sleep 1000")))
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	eventually(t, "the stager has ended", func() bool { return len(p.inCgroup("")) == 0 })
	p.let("go")
	p.must("gc")
	if all := p.ps(); len(all) != 0 {
		t.Errorf("left: pods %+v", all)
	}
}

// More apps than the supervisor starts at once, with a limit of the network, which is set when its interfaces are there.
func TestManyAppsAndALimitWaitForTheNetworks(t *testing.T) {
	var apps []appDoc
	for i := range 20 {
		apps = append(apps, shell(fmt.Sprint("a", i), "cat /etc/resolv.conf; exec sleep 1000"))
	}
	doc := podOf(apps...)
	doc.Isolators = []any{isolator("resource/network-bandwidth", map[string]any{"default": true, "limit": "1M"})}
	p := hold(t, "msg=stager", doc)
	p.let("go")
	for _, app := range apps {
		p.writes(app.Name, "nameserver 192.0.2.53\n")
	}
	pid := p.inCgroup("/apps/a0")[0]
	if out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "tc", "qdisc", "show", "dev", "eth0").CombinedOutput(); err != nil || !strings.Contains(string(out), "tbf") {
		t.Errorf("queues of eth0: %v, %s", err, out)
	}
}

func TestAStagerThatIsKilledMeanwhileFailsThePod(t *testing.T) {
	p := hold(t, "root file systems", podOf(shell("a", "exec sleep 1000")))
	killed := 0
	for _, pid := range p.inCgroup("") {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if string(line) == names.Exec+"\x00" && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatal("no stager to kill")
	}
	p.let("go")
	p.failed("the stager ended before the pod was up (SIGKILL)")
}

// A stager whose image does not say that it waits starts when the networks are connected.
func TestAStagerThatDoesNotWaitStartsAfterTheNetworks(t *testing.T) {
	dir := t.TempDir()
	manifest, aci := filepath.Join(dir, "manifest.json"), filepath.Join(dir, "stager.aci")
	const text = `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/stager", "labels": [{"name": "os", "value": "linux"}, {"name": "arch", "value": "amd64"}],
		"app": {"exec": ["/names/names.go"], "user": "0", "group": "0"}}`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := runTool("aci", "--manifest", manifest, "--stager", filepath.Join(filepath.Dir(suite.launcher), "stager"), "-o", aci); err != nil {
		t.Fatal(err)
	}
	p := newHeldPod(t, podOf(shell("a", "cat /etc/resolv.conf; exec sleep 1000")), func(b *machine) {
		b.keys = append(b.keys, aci+".pub")
		b.config["defaultStagerImage"] = "file://" + aci
	})
	if log, err := os.ReadFile(filepath.Join(p.pods, p.uuid, "stager.log")); len(log) > 0 {
		t.Errorf("the stager starts before the networks are connected: %v, %q", err, log)
	}
	p.let("go")
	p.writes("a", "nameserver 192.0.2.53\n")
	if _, err := os.Lstat(filepath.Join(p.pods, p.uuid, "root", names.ConnectedFIFO)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the FIFO of a stager that does not wait: %v", err)
	}
}
