package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	fixture "kurma.io/stager/tests/daemon"
)

// bridgeEntry is a network on a bridge with published ports, for the launcher and for cnitool; each has keys
// of its own before these.
const bridgeEntry = `"cniVersion": "1.0.0", "name": "bridge", "plugins": [
	{"type": "bridge", "bridge": "bench0", "isGateway": true, "ipMasq": true,
	 "ipam": {"type": "host-local", "subnet": "10.87.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]`

// benchImage is the image of the pods on networks: the lowest layer, whose app is /bin/pause.
const benchImage = "example.com/bench"

// A bridged host has a network namespace of its own, in which the launcher, podman and cnitool make their
// bridges, and file systems of its own in /run and /var/lib, where podman and CNI keep what they make.
type bridged struct {
	*benchmark
	dir     string
	cgroup  string // of the launcher's pods and podman's containers
	netns   string // the machine's
	cnitool string
	plugins string    // folder of the CNI plugins, those of the plugin's image
	pod     *exec.Cmd // a process in the namespace that the plugins connect
}

// network measures a pod on a bridge network: from the command's start until it has returned, as the pod's app
// runs; and the call of the network's plugin, `add` and `del`, beside cnitool with the same plugins and
// configuration.
func (b *benchmark) network() (err error) {
	n := &bridged{benchmark: b, dir: filepath.Join(b.host.dir, "network"), cgroup: b.host.id()}
	defer func() { err = errors.Join(err, n.close()) }()
	for _, step := range []func() error{n.mount, n.makeImages, n.prepareLauncher, n.preparePodman, n.prepareCNI} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := n.pods(); err != nil {
		return err
	}
	return n.calls()
}

// hidden are folders that get an empty file system.
func hidden() []string { return []string{"/run", "/var/lib"} }

func (n *bridged) mount() error {
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return err
	}
	for _, dir := range hidden() {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	n.netns = filepath.Join(n.dir, "netns")
	if err := pinNetns(n.netns); err != nil {
		return err
	}
	_, err := n.inside("ip", "link", "set", "lo", "up")
	return err
}

func (n *bridged) close() error {
	var errs []error
	if n.pod != nil {
		errs = append(errs, n.pod.Process.Kill())
		_ = n.pod.Wait() // killed
	}
	if _, err := os.Stat(n.file("config.json")); err == nil {
		_, err := n.launcher("gc")
		errs = append(errs, err)
	}
	mounts, err := fixture.Hierarchies()
	errs = append(errs, err)
	for _, mount := range mounts {
		if dir := filepath.Join(mount, n.cgroup); exists(dir) {
			errs = append(errs, killTree(dir))
		}
	}
	errs = append(errs, fixture.RemoveCgroup(n.cgroup))
	for _, dir := range hidden() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (n *bridged) file(name string) string { return filepath.Join(n.dir, name) }

// inside runs a command in the machine's network namespace and returns its output.
func (n *bridged) inside(args ...string) (string, error) {
	return output(exec.Command("nsenter", append([]string{"--net=" + n.netns}, args...)...))
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

func (n *bridged) launcher(args ...string) (string, error) {
	return n.inside(append([]string{filepath.Join(n.bin, "launcher"), "--config", n.file("config.json"), "--state", n.file("state")}, args...)...)
}

func (n *bridged) podman(args ...string) (string, error) {
	return n.inside(append([]string{"podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"}, args...)...)
}

// makeImages makes the image of the apps as an ACI and as an archive, of the same files.
func (n *bridged) makeImages() error {
	layer := n.host.layers[layerCount-1]
	manifest := fmt.Sprintf(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": %q, "labels": [{"name": "os", "value": "linux"}, {"name": "arch", "value": "amd64"}],
		"app": {"exec": ["/bin/pause"], "user": "0", "group": "0"}}`, benchImage)
	if err := os.WriteFile(n.file("manifest.json"), []byte(manifest), 0o644); err != nil {
		return err
	}
	if _, err := output(exec.Command(filepath.Join(n.bin, "aci"), "--manifest", n.file("manifest.json"), "--root", layer, "-o", n.file("bench.aci"))); err != nil {
		return err
	}
	_, err := output(exec.Command("tar", "-C", layer, "-cf", n.file("bench.tar"), "."))
	return err
}

// prepareLauncher imports the images and starts the network's plugin.
func (n *bridged) prepareLauncher() error {
	plugin := filepath.Join(filepath.Dir(n.aci), "cni-netplugin.aci")
	config := fmt.Sprintf(`{"trustedKeys": [%q, %q], "parentCgroupName": %q, "container_networks": [
		{"aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth0", %s}]}`, n.aci+".pub", plugin+".pub", n.cgroup, bridgeEntry)
	if err := os.WriteFile(n.file("config.json"), []byte(config), 0o600); err != nil {
		return err
	}
	if _, err := n.launcher("image", "import", n.aci, plugin, n.file("bench.aci")); err != nil {
		return err
	}
	_, err := n.launcher("network", "validate")
	return err
}

func (n *bridged) preparePodman() error {
	_, err := n.podman("import", n.file("bench.tar"), benchImage)
	return err
}

// prepareCNI builds cnitool, finds the CNI plugins of the plugin's image, and makes a namespace for them to
// connect.
func (n *bridged) prepareCNI() error {
	n.cnitool = n.file("cnitool")
	build := exec.Command("go", "build", "-C", "netplugins", "-o", n.cnitool, "github.com/containernetworking/cni/cnitool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := output(build); err != nil {
		return err
	}
	found, err := filepath.Glob(n.file("state/images/sha512-*/rootfs/opt/cni/bin"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find CNI plugins: %v, %w", found, err)
	}
	n.plugins = found[0]
	if err := os.WriteFile(n.file("bridge.conflist"), []byte("{"+bridgeEntry+"}"), 0o644); err != nil {
		return err
	}
	n.pod = exec.Command("unshare", "--net", filepath.Join(n.host.layers[layerCount-1], "bin/pause"))
	return n.pod.Start()
}

// pods measures a pod's start.
func (n *bridged) pods() error {
	ours := func() (time.Duration, error) {
		return timePod(n.launcher, []string{"run", "--detach", "--name", "pod", "--net", "bridge", benchImage}, []string{"rm", "--force", "pod"})
	}
	// Podman asks for higher limits than a machine may allow its root.
	podman := func() (time.Duration, error) {
		return timePod(n.podman, []string{
			"run", "--detach", "--name", "pod", "--cgroup-parent", "/" + n.cgroup, "--log-driver", "k8s-file",
			"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--pids-limit", "-1", benchImage, "/bin/pause",
		}, []string{"rm", "--force", "--time", "0", "pod"})
	}
	samples, err := collect(n.runs, []func() (time.Duration, error){ours, podman})
	if err != nil {
		return err
	}
	t := newTable("pod on a bridge network: its app runs, medians of "+fmt.Sprint(n.runs), "launcher run", "podman run", "launcher/podman")
	launcher, other := median(samples[0]), median(samples[1])
	t.row(launcher, other, ratio(launcher, other))
	return t.end()
}

// timePod starts a pod by a program, removes it, and returns how long the start took.
func timePod(program func(...string) (string, error), start, remove []string) (time.Duration, error) {
	begin := time.Now()
	_, err := program(start...)
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	_, err = program(remove...)
	return took, err
}

// calls measures the plugin's `add` and `del`.
func (n *bridged) calls() error {
	text, err := n.launcher("network", "inspect", "bridge")
	if err != nil {
		return err
	}
	var plugin struct{ PID int }
	if err := json.Unmarshal([]byte(text), &plugin); err != nil {
		return err
	}
	samples, err := collect(5*n.runs, []func() (time.Duration, error){
		func() (time.Duration, error) {
			return timeCalls(func(name string) error { return n.callPlugin(plugin.PID, name) })
		},
		func() (time.Duration, error) { return timeCalls(n.callCNITool) },
	})
	if err != nil {
		return err
	}
	t := newTable("add and del of a pod on a bridge network, medians of "+fmt.Sprint(5*n.runs), "plugin", "cnitool", "plugin/cnitool")
	ours, cnitool := median(samples[0]), median(samples[1])
	t.row(ours, cnitool, ratio(ours, cnitool))
	return t.end()
}

func timeCalls(call func(name string) error) (time.Duration, error) {
	begin := time.Now()
	for _, name := range []string{"add", "del"} {
		if err := call(name); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// portMappings publishes a port.
const portMappings = `{"portMappings": [{"hostPort": 18087, "containerPort": 80, "protocol": "tcp"}]}`

func (n *bridged) podNamespace() string { return fmt.Sprintf("/proc/%d/ns/net", n.pod.Process.Pid) }

// callPlugin runs one of the plugin's executables as the launcher does, by the call-in run of the plugin's
// container.
func (n *bridged) callPlugin(stager int, name string) error {
	settings, err := json.Marshal(map[string]any{
		"exec": []string{"/opt/network/" + name, n.podNamespace(), "146d7cef-fbf6-41da-a2f8-eba218597f9c", "eth0"},
		"user": "0", "group": "0",
	})
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	_, err = write.Write(settings)
	if err := errors.Join(err, write.Close()); err != nil {
		return err
	}
	cmd := exec.Command("nsenter", fmt.Sprintf("--target=%d", stager), "--mount", "--net", "--root", "--wd=/", names.CallInDir+"/"+names.Run, "plugin")
	cmd.Env = []string{"HOME=/"}
	cmd.Stdin = strings.NewReader(`{"runtimeConfig": ` + portMappings + `, ` + bridgeEntry + `}`)
	cmd.ExtraFiles = []*os.File{read}
	_, err = output(cmd)
	return err
}

func (n *bridged) callCNITool(name string) error {
	cmd := exec.Command("nsenter", "--net="+n.netns, n.cnitool, name, "bridge", n.podNamespace())
	cmd.Env = append(os.Environ(), "CNI_PATH="+n.plugins, "NETCONFPATH="+n.dir, "CNI_IFNAME=eth0", "CAP_ARGS="+portMappings)
	_, err := output(cmd)
	return err
}
