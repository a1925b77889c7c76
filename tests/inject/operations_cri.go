package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/poll"
)

// criWord begins a command that is a call of the CRI: METHOD REQUEST follow.
const criWord = "cri"

// Words of requests that the world replaces, see criWords.
const (
	sandboxWord       = "@SANDBOX"
	containerWord     = "@CONTAINER"
	sandboxConfigWord = "@SANDBOXCONFIG"
)

// criWords replaces the words of a request.
func (w *world) criWords(request string) string {
	config := fmt.Sprintf(`{"metadata": {"name": "p", "uid": "u", "namespace": "n"}, "hostname": "p", "logDirectory": %q,
		"dnsConfig": {"servers": ["192.0.2.1"]}, "portMappings": [{"containerPort": 8080, "hostPort": 18080}],
		"linux": {"cgroupParent": "/%s/kubelet", "securityContext": {"namespaceOptions": {"pid": "CONTAINER"}}}}`, w.path("logs/p"), w.cgroup)
	return strings.NewReplacer(sandboxConfigWord, config, sandboxWord, w.sandbox, containerWord, w.container).Replace(request)
}

// criConfig is the server's configuration.
func (w *world) criConfig() map[string]any {
	return map[string]any{
		"socket": w.path("cri.sock"), "state": w.path("cri"), "stagerImage": "file://" + w.ACI, "trustedKeys": []string{w.ACI + ".pub"},
		"trustDirectory": w.path("crit"), "cgroupDriver": "cgroupfs", "networkConfigDirectory": w.path("net.d"),
		"networkPluginDirectories": []string{"/usr/lib/cni"},
	}
}

// criNetwork is the CNI configuration of the server's pods.
const criNetwork = `{"cniVersion": "1.0.0", "name": "cri", "plugins": [
	{"type": "bridge", "bridge": "cri0", "isGateway": true, "ipMasq": true,
	 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/16"}]], "dataDir": %q}},
	{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "firewall"}]}`

// setUpServer makes what the server needs, and pulls the image.
func (w *world) setUpServer() error {
	config, err := json.Marshal(w.criConfig())
	err = errors.Join(
		err, daemon.MakeCgroup(w.cgroup+"/kubelet"), os.Mkdir(w.path("net.d"), 0o755), os.WriteFile(w.path("cri.json"), config, 0o600),
		os.WriteFile(w.path("net.d/10.conflist"), fmt.Appendf(nil, criNetwork, w.path("out/ipam")), 0o644),
	)
	if err != nil {
		return err
	}
	if r := w.launcher(pullCall()...); r.code != 0 {
		return fmt.Errorf("pull: %s", r.stderr)
	}
	return nil
}

func pullCall() []string {
	return []string{criWord, "PullImage", fmt.Sprintf(`{"image": {"image": %q}}`, pulled)}
}

// serverLives starts the server unless it lives, and waits until it answers.
func (w *world) serverLives() error {
	if w.serverEnd != nil {
		select {
		case <-w.serverEnd:
		default:
			return nil
		}
	}
	log, err := os.OpenFile(w.path("out/server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := self(stageEnter, filepath.Join(w.Bin, "kurma-cri"), "--config", w.path("cri.json"))
	cmd.Env = append(cmd.Environ(), "TMPDIR="+w.path("tmp"), "HOME="+w.path("home"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := w.start(cmd, true); err != nil {
		return err
	}
	ended := make(chan struct{})
	w.serverEnd = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	if !poll.Until(w.limit, w.limit/100, func() bool { return w.run(false, w.callArgv("Version", "{}")...).code == 0 }) {
		return errors.New("the server does not answer")
	}
	return nil
}

// watchWord begins the method of a call beside which GetContainerEvents waits for the end of a container.
const watchWord = "watch "

func (w *world) callArgv(method, request string) []string {
	word := "call"
	if name, watched := strings.CutPrefix(method, watchWord); watched {
		word, method = "watch", name
	}
	return []string{w.Client, w.path("cri.sock"), word, method, w.criWords(request)}
}

func (w *world) callServer(method, request string) result {
	if err := w.serverLives(); err != nil {
		w.hung = "start the server: " + err.Error()
		return result{code: -1, stderr: err.Error()}
	}
	return w.run(false, w.callArgv(method, request)...)
}

// call makes a call of the CRI, and keeps the ID that it answers.
func (w *world) call(method, request string) result {
	r := w.callServer(method, request)
	if strings.HasSuffix(strings.TrimSpace(r.stderr), "connect: connection refused\"") {
		select { // a server that is killed closes its socket before it ends
		case <-w.serverEnd:
		case <-time.After(w.limit):
		}
		r = w.callServer(method, request)
	}
	var answer struct {
		Sandbox   string `json:"podSandboxId"`
		Container string `json:"containerId"`
	}
	_ = json.Unmarshal([]byte(r.stdout), &answer) // an error of the call has none
	switch method {
	case "RunPodSandbox":
		w.sandbox = answer.Sandbox
	case "CreateContainer":
		w.container = answer.Container
	}
	return r
}

// sandboxes and containers return what the server lists.
func (w *world) sandboxes() string  { return w.call("ListPodSandbox", "{}").stdout }
func (w *world) containers() string { return w.call("ListContainers", "{}").stdout }

// clearServer removes all sandboxes, and the containers' logs, as kubelet does.
func (w *world) clearServer() error {
	var listed struct {
		Items []struct {
			ID string `json:"id"`
		}
	}
	r := w.call("ListPodSandbox", "{}")
	if err := json.Unmarshal([]byte(r.stdout), &listed); err != nil {
		return fmt.Errorf("list sandboxes: %w: %s", err, r.stderr)
	}
	for _, s := range listed.Items {
		for _, method := range []string{"StopPodSandbox", "RemovePodSandbox"} {
			if r := w.call(method, fmt.Sprintf(`{"podSandboxId": %q}`, s.ID)); r.code != 0 {
				return fmt.Errorf("%s reports %d: %s", method, r.code, r.stderr)
			}
		}
	}
	return os.RemoveAll(w.path("logs"))
}

// criOperations are the calls of the CRI.
func criOperations() []operation {
	const byContainer, bySandbox = `{"containerId": "` + containerWord + `"}`, `{"podSandboxId": "` + sandboxWord + `"}`
	run := []string{criWord, "RunPodSandbox", `{"config": ` + sandboxConfigWord + `}`}
	create := []string{criWord, "CreateContainer", fmt.Sprintf(`{"podSandboxId": %q, "sandboxConfig": %s, "config": {
		"metadata": {"name": "c"}, "image": {"image": %q}, "command": ["sh", "-c", %q], "logPath": "c.log",
		"linux": {"securityContext": {"namespaceOptions": {"pid": "CONTAINER"}}}}}`, sandboxWord, sandboxConfigWord, pulled, podScript)}
	start := []string{criWord, "StartContainer", byContainer}
	stop := []string{criWord, "StopContainer", `{"containerId": "` + containerWord + `", "timeout": "5"}`}
	ran := [][]string{run, create, start, {awaitWord}}
	lists := func(list func(*world) string, word string) func(*world, result) bool {
		return func(w *world, _ result) bool { return strings.Contains(list(w), word) }
	}
	state := func(word string) func(*world) bool {
		return func(w *world) bool { return strings.Contains(w.containers(), word) }
	}
	one := func(w *world) bool { return strings.Contains(w.sandboxes(), "SANDBOX_READY") }
	none := func(list func(*world) string) func(*world, result) bool {
		return func(w *world, _ result) bool { return !strings.Contains(list(w), `"id"`) }
	}
	image := fmt.Sprintf(`{"image": {"image": %q}}`, pulled)
	all := []operation{
		{name: "RunPodSandbox", act: run, ready: func(w *world) bool { return none((*world).sandboxes)(w, result{}) }, done: lists((*world).sandboxes, "SANDBOX_READY")},
		{name: "StopPodSandbox", before: ran, act: []string{criWord, "StopPodSandbox", bySandbox}, ready: one, done: lists((*world).sandboxes, "SANDBOX_NOTREADY")},
		{name: "RemovePodSandbox", before: ran, act: []string{criWord, "RemovePodSandbox", bySandbox}, ready: one, done: none((*world).sandboxes)},
		{name: "CreateContainer", before: [][]string{run}, act: create, ready: func(w *world) bool { return one(w) && none((*world).containers)(w, result{}) }, done: lists((*world).containers, "CONTAINER_CREATED")},
		{name: "StartContainer", before: [][]string{run, create}, act: start, ready: state("CONTAINER_CREATED"), done: lists((*world).containers, "CONTAINER_RUNNING")},
		{name: "StopContainer", before: ran, act: stop, ready: state("CONTAINER_RUNNING"), done: lists((*world).containers, "CONTAINER_EXITED"), kept: (*world).criLog},
		{name: "GetContainerEvents", before: ran, act: []string{criWord, watchWord + stop[1], stop[2]}, ready: state("CONTAINER_RUNNING"), done: said("CONTAINER_STOPPED_EVENT")},
		{name: "RemoveContainer", before: append(ran, stop), act: []string{criWord, "RemoveContainer", byContainer}, ready: state("CONTAINER_EXITED"), done: none((*world).containers)},
		{name: "PullImage", before: [][]string{{criWord, "RemoveImage", image}}, act: pullCall(), done: (*world).pulledImage, after: (*world).pullAgain},
		{
			name: "RemoveImage", act: []string{criWord, "RemoveImage", image}, done: func(w *world, r result) bool { return !w.pulledImage(r) },
			after: (*world).pullAgain,
		},
	}
	all = append(all, readOperations(ran, state("CONTAINER_RUNNING"))...)
	for i := range all {
		all[i].name = "cri-" + all[i].name
	}
	return all
}

// readOperations are the calls that change nothing that lasts, beside a container that runs.
func readOperations(ran [][]string, ready func(*world) bool) []operation {
	const byContainer, bySandbox = `{"containerId": "` + containerWord + `"}`, `{"podSandboxId": "` + sandboxWord + `"}`
	image := fmt.Sprintf(`{"image": {"image": %q}}`, pulled)
	var all []operation
	for _, read := range []struct{ method, request, word string }{
		{"Version", "{}", "kurma"},
		{"Status", `{"verbose": true}`, "NetworkReady"},
		{"RuntimeConfig", "{}", "CGROUPFS"},
		{"UpdateRuntimeConfig", `{"runtimeConfig": {"networkConfig": {"podCidr": "10.0.0.0/8"}}}`, "{"},
		{"ListPodSandbox", "{}", "SANDBOX_READY"},
		{"PodSandboxStatus", bySandbox, "SANDBOX_READY"},
		{"PodSandboxStats", bySandbox, "stats"},
		{"ListPodSandboxStats", "{}", "stats"},
		{"ListPodSandboxMetrics", "{}", "podMetrics"},
		{"ListMetricDescriptors", "{}", "descriptors"},
		{"ListContainers", "{}", "CONTAINER_RUNNING"},
		{"ContainerStatus", byContainer, "CONTAINER_RUNNING"},
		{"ContainerStats", byContainer, "stats"},
		{"ListContainerStats", "{}", "stats"},
		{"ReopenContainerLog", byContainer, "{"},
		{"UpdateContainerResources", `{"containerId": "` + containerWord + `", "linux": {"memoryLimitInBytes": "104857600"}}`, "{"},
		{"ExecSync", `{"containerId": "` + containerWord + `", "cmd": ["sh", "-c", "echo done"], "timeout": "20"}`, "ZG9uZQo="},
		{"Exec", `{"containerId": "` + containerWord + `", "cmd": ["true"], "stdout": true}`, "url"},
		{"Attach", `{"containerId": "` + containerWord + `", "stdout": true}`, "url"},
		{"PortForward", bySandbox, "url"},
		{"ListImages", "{}", "test"},
		{"ImageStatus", image, "test"},
		{"ImageFsInfo", "{}", "imageFilesystems"},
	} {
		all = append(all, operation{name: read.method, before: ran, act: []string{criWord, read.method, read.request}, ready: ready, done: said(read.word)})
	}
	return all
}

func (w *world) pulledImage(result) bool {
	return strings.Contains(w.call("ListImages", "{}").stdout, pulled)
}

func (w *world) pullAgain() {
	if !w.pulledImage(result{}) {
		w.launcher(pullCall()...)
	}
}

// criLog reports the log of a container that is lost.
func (w *world) criLog() string {
	text, err := os.ReadFile(w.path("logs/p/c.log"))
	if !strings.Contains(string(text), "hello") {
		return fmt.Sprintf("the log of the container: %q %v", text, err)
	}
	return ""
}
