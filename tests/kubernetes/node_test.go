package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// node is a machine of the cluster: namespaces and a cgroup, whose PID 1 is an agent.
type node struct {
	c       *cluster
	name    string
	address string
	pods    string // the network of its pods
	dir     string
	begin   time.Time

	agent   *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
}

// newNode starts a node with its programs. The first one has number 1.
func (c *cluster) newNode(number int) *node {
	c.Helper()
	n := c.makeNode(number)
	n.writeConfigs(nil)
	n.boot()
	return n
}

// makeNode makes a node that is not started, and ends it with the test.
func (c *cluster) makeNode(number int) *node {
	c.Helper()
	n := &node{
		c: c, name: fmt.Sprintf("node-%d", number), address: fmt.Sprintf("10.98.0.%d", 10+number),
		pods: fmt.Sprintf("10.99.%d.0/24", number), begin: time.Now(),
	}
	n.dir = c.path(n.name)
	c.must(os.MkdirAll(n.dir, 0o755))
	c.Cleanup(func() {
		if n.agent != nil {
			n.end()
		}
		if c.Failed() {
			for _, name := range []string{"kurma-cri", "kubelet", "kube-proxy"} {
				c.Logf("%s on %s says at its end:\n%s", name, n.name, tail(n.path(name+".log")))
			}
		}
	})
	return n
}

// boot starts the node with its programs.
func (n *node) boot() {
	n.c.Helper()
	n.startAgent()
	n.connect()
	n.startServer()
	n.startKubelet()
	n.start("kube-proxy", environment(n.c.T, "KUBERNETES"), "kube-proxy", "--config", n.path("kube-proxy.yaml"),
		"--hostname-override", n.name)
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// startAgent starts the node's PID 1 in namespaces of its own.
func (n *node) startAgent() {
	n.c.Helper()
	n.agent = &exec.Cmd{Path: "/proc/self/exe", Args: []string{"agent", n.name, n.dir}}
	n.agent.Env = append(os.Environ(), stageVariable+"=node")
	n.agent.Stderr = os.Stderr
	n.agent.SysProcAttr = &unix.SysProcAttr{Cloneflags: namespaces}
	in, err := n.agent.StdinPipe()
	n.c.must(err)
	out, err := n.agent.StdoutPipe()
	n.c.must(err)
	n.c.must(n.agent.Start())
	n.orders, n.answers = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	n.answer("prepare the node")
}

// end kills all of the node, as a loss of power does: what is in memory is gone. It may be repeated.
func (n *node) end() {
	_ = n.agent.Process.Kill()
	_ = n.agent.Wait()
	err := errors.Join(removeCgroups(os.Getenv(cgroupVariable)+"/"+n.name), os.RemoveAll(n.path("run")))
	if err != nil {
		n.c.Error(err)
	}
	// The kernel destroys the node's network later than its processes.
	n.c.await("the node's network is gone", func() bool {
		_, err := net.InterfaceByName(n.name)
		return err != nil
	})
}

// answer waits for the agent's answer to an order.
func (n *node) answer(what string) {
	n.c.Helper()
	var text string
	if err := n.answers.Decode(&text); err != nil || text != "" {
		n.c.Fatalf("%s on %s: %v: %s", what, n.name, err, text)
	}
}

// start starts a program on the node.
func (n *node) start(name string, argv ...string) {
	n.c.Helper()
	n.c.must(n.orders.Encode(order{Start: argv, Name: name, Log: n.path(name + ".log")}))
	n.answer("start " + name)
}

// kill kills a program of the node by SIGKILL.
func (n *node) kill(name string) {
	n.c.Helper()
	n.c.must(n.orders.Encode(order{Kill: name}))
	n.answer("kill " + name)
}

// startServer starts the server and waits for it: kubelet ends if nobody answers.
func (n *node) startServer() {
	n.c.Helper()
	program := filepath.Join(environment(n.c.T, "STAGER_BIN"), "kurma-cri")
	n.start("kurma-cri", program, "--config", n.path("kurma-cri.json"))
	n.c.await("kurma-cri answers", func() bool {
		conn, err := net.Dial("unix", n.path("run/kurma-cri/kurma-cri.sock"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (n *node) startKubelet() {
	n.c.Helper()
	n.start("kubelet", environment(n.c.T, "KUBERNETES"), "kubelet", "--config", n.path("kubelet.yaml"),
		"--kubeconfig", n.c.path("node-kubeconfig"), "--hostname-override", n.name, "--node-ip", n.address)
}

// connect connects the node with the control plane, and the control plane with the node's pods.
func (n *node) connect() {
	n.c.Helper()
	pid, outer := strconv.Itoa(n.agent.Process.Pid), n.name
	n.c.must(ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", pid))
	n.c.must(ip("link", "set", outer, "master", "nodes", "up"))
	n.c.must(ip("route", "replace", n.pods, "via", n.address))
	n.c.must(n.inside("ip", "address", "add", n.address+"/24", "dev", "eth0"))
	n.c.must(n.inside("ip", "link", "set", "eth0", "up"))
	n.c.must(n.inside("ip", "route", "add", "default", "via", controlAddress))
}

// inside runs a program in the node's network.
func (n *node) inside(args ...string) error {
	args = append([]string{"--target", strconv.Itoa(n.agent.Process.Pid), "--net"}, args...)
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q on %s: %w: %s", args, n.name, err, out)
	}
	return nil
}

// writeConfigs writes the configurations of the node's programs, with more keys for kubelet.
func (n *node) writeConfigs(kubelet map[string]any) {
	n.c.Helper()
	n.writeServerConfig(n.path("net.d"))
	n.write("net.d/10-pods.conflist", map[string]any{"cniVersion": "1.0.0", "name": "pods", "plugins": []any{
		map[string]any{"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true, "ipam": map[string]any{
			"type": "host-local", "ranges": [][]any{{map[string]any{"subnet": n.pods}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		}},
		map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
	}})
	n.c.write(n.name+"/resolv.conf", "nameserver "+serviceAddress+"\n")
	config := map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"containerRuntimeEndpoint": "unix:///run/kurma-cri/kurma-cri.sock", "cgroupDriver": "cgroupfs",
		"failCgroupV1": false, "failSwapOn": false, "oomScoreAdj": 0,
		"evictionHard": map[string]any{"memory.available": "100Mi"}, // not for the machine's disk
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"}, "resolvConf": n.path("resolv.conf"),
		"clusterDNS":                []string{"10.96.0.10"}, // nobody answers there
		"nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s", "maxPods": 120,
		// 100 pods are made as fast as the runtime can.
		"kubeAPIQPS": 200, "kubeAPIBurst": 400, "registryPullQPS": 0, "eventRecordQPS": 0,
		"volumePluginDir": n.path("volume-plugins"), "imageGCHighThresholdPercent": 100,
	}
	for key, value := range kubelet {
		config[key] = value
	}
	n.write("kubelet.yaml", config)
	n.write("kube-proxy.yaml", map[string]any{
		"kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "mode": "nftables",
		"clientConnection": map[string]any{"kubeconfig": n.c.path("node-kubeconfig")},
		"clusterCIDR":      "10.99.0.0/16", "nodePortAddresses": []string{n.address + "/32"},
		// The kernel has these for the whole machine.
		"conntrack": map[string]any{"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
}

// writeServerConfig writes the configuration of kurma-cri. Networks is the folder of CNI's configurations.
func (n *node) writeServerConfig(networks string) {
	n.c.Helper()
	stager := environment(n.c.T, "STAGER_ACI")
	n.write("kurma-cri.json", map[string]any{
		"stagerImage": "file://" + stager, "trustedKeys": []string{stager + ".pub"}, "cgroupDriver": "cgroupfs",
		"insecureRegistries": []string{registry}, "registriesDirectory": n.path("certs.d"),
		"networkConfigDirectory": networks, "networkPluginDirectories": []string{"/usr/lib/cni"},
	})
}

// write writes a file of JSON, which is YAML.
func (n *node) write(name string, value any) {
	n.c.Helper()
	text, err := json.Marshal(value)
	n.c.must(err)
	n.c.write(n.name+"/"+name, string(text))
}

// entries returns what a folder of the server's state has.
func (n *node) entries(name string) []string {
	n.c.Helper()
	all, err := os.ReadDir(n.path("var/lib/kurma-cri/" + name))
	n.c.must(err)
	var names []string
	for _, e := range all {
		if e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	return names
}
