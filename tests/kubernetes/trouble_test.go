package kubernetes

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

func testOutOfMemory(c *cluster) {
	space := c.space()
	c.apply(space, `
apiVersion: v1
kind: Pod
metadata: {name: eats}
spec:
  restartPolicy: Never
  containers: [{name: main, image: IMAGE, command: [tail, /dev/zero], resources: {limits: {memory: 32Mi}}}]
`)
	c.awaitField(space, "pod/eats", ".status.phase", "Failed")
	end := c.field(space, "pod/eats", ".status.containerStatuses[0].state.terminated['reason','exitCode']")
	if end != "OOMKilled 137" {
		c.Errorf("ended with %q", end)
	}
}

// Kubelet and the server may be killed: the containers are the same afterwards, and new ones start.
func testRestarts(c *cluster) {
	space, n := c.space(), c.nodes[0]
	c.rollOut(space, "deployment/web", web)
	const ids = ".items[*].status.containerStatuses[*]['containerID','restartCount','ready']"
	before, pod := c.field(space, "pods", ids), c.names(space, "pods")[0]
	same := func(killed string) {
		c.Helper()
		begin := time.Now()
		c.await("a command runs again", func() bool {
			_, err := c.try("", "exec", pod, "--namespace", space, "--container", "side", "--", "true")
			return err == nil
		})
		c.Logf("a command runs %s after %s has been killed", since(begin), killed)
		after := ""
		if !eventually(patience, func() bool { after = c.field(space, "pods", ids); return after == before }) {
			c.Errorf("containers before\n%s\nafter %s has been killed\n%s", before, killed, after)
		}
	}
	n.kill("kurma-cri")
	n.startServer()
	same("kurma-cri")
	n.kill("kubelet")
	n.startKubelet()
	same("kubelet")
	n.kill("kubelet")
	n.kill("kurma-cri")
	n.startServer()
	n.startKubelet()
	same("both")
	for range 3 { // in the middle of starts
		running := len(n.entries("pods"))
		c.kubectl("scale", "deployment/web", "--namespace", space, "--replicas=8")
		c.await("a start", func() bool { return len(n.entries("pods")) > running })
		n.kill("kurma-cri")
		n.startServer()
		c.kubectl("rollout", "status", "deployment/web", "--namespace", space, limit())
		c.kubectl("scale", "deployment/web", "--namespace", space, "--replicas=2")
		c.await("two pods are left", func() bool { return len(c.names(space, "pods")) == 2 })
	}
	// Kubelet removes what it has stopped once a minute.
	c.await("two sandboxes are left", func() bool { return len(n.entries("sandboxes")) == 2 })
}

// summary is a part of kubelet's statistics.
type summary struct {
	Node struct {
		Memory struct{ AvailableBytes, WorkingSetBytes uint64 }
	}
	Pods []struct {
		PodRef     struct{ Name, Namespace string }
		Memory     struct{ WorkingSetBytes uint64 }
		Network    struct{ RxBytes uint64 }
		Containers []struct {
			Name   string
			CPU    struct{ UsageCoreNanoSeconds uint64 }
			Memory struct{ WorkingSetBytes uint64 }
			Rootfs struct{ UsedBytes uint64 }
		}
	}
}

func (c *cluster) summary(n *node) (s summary) {
	c.Helper()
	c.must(json.Unmarshal([]byte(c.kubectl("get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/stats/summary")), &s))
	return s
}

// Kubelet's statistics are those that kubectl top and the autoscalers read.
func testStats(c *cluster) {
	space := c.space()
	c.rollOut(space, "deployment/web", web)
	var seen string
	var network bool
	whole := func() bool {
		count := 0
		seen, network = "", true
		for _, pod := range c.summary(c.nodes[0]).Pods {
			if pod.PodRef.Namespace != space {
				continue
			}
			seen += fmt.Sprintf("%+v\n", pod)
			network = network && pod.Network.RxBytes > 0
			for _, container := range pod.Containers {
				uses := container.CPU.UsageCoreNanoSeconds > 0 && container.Memory.WorkingSetBytes > 0
				if uses && pod.Memory.WorkingSetBytes > 0 {
					count++
				}
			}
		}
		return count == 4
	}
	if !eventually(patience, whole) {
		c.Errorf("statistics of 4 containers:\n%s", seen)
	}
	// Kubelet's own statistics lack the network of pods without a process of the sandbox; those by the CRI have it.
	c.restartKubelet(c.nodes[0], map[string]any{"featureGates": map[string]bool{"PodAndContainerStatsFromCRI": true}})
	defer c.restartKubelet(c.nodes[0], nil)
	if !eventually(patience, func() bool { return whole() && network }) {
		c.Errorf("statistics by the CRI of 4 containers and 2 networks:\n%s", seen)
	}
	metrics := c.kubectl("get", "--raw", "/api/v1/nodes/"+c.nodes[0].name+"/proxy/metrics/resource")
	if count := strings.Count(metrics, "\ncontainer_memory_working_set_bytes{"); count < 4 {
		c.Errorf("metrics of %d containers:\n%s", count, metrics)
	}
	metrics = c.kubectl("get", "--raw", "/api/v1/nodes/"+c.nodes[0].name+"/proxy/metrics/cadvisor")
	for name, want := range map[string]int{"container_memory_working_set_bytes": 4, "container_network_receive_bytes_total": 2} {
		named := regexp.MustCompile(fmt.Sprintf(`(?m)^%s{.*namespace="%s",pod="web-.*} [1-9]`, name, space))
		if count := len(named.FindAllString(metrics, -1)); count != want {
			c.Errorf("%d values of %s, want %d:\n%s", count, name, want, metrics)
		}
	}
}

func testDrain(c *cluster) {
	space, n := c.space(), c.nodes[0]
	c.rollOut(space, "deployment/web", web)
	c.rollOut(space, "daemonset/each", each)
	begin := time.Now()
	c.kubectl("drain", n.name, "--ignore-daemonsets", "--delete-emptydir-data", limit())
	c.Logf("drained after %s", since(begin))
	c.await("the Deployment's pods wait", func() bool {
		return c.field(space, "pods --selector=app=web", ".items[*].status.phase") == "Pending Pending"
	})
	c.await("one sandbox is left", func() bool { return len(n.entries("sandboxes")) == 1 })
	c.kubectl("uncordon", n.name)
	c.kubectl("rollout", "status", "deployment/web", "--namespace", space, limit())
}

func testEviction(c *cluster) {
	space, n := c.space(), c.nodes[0]
	// Kubelet's statistics of a new pod may be old: what uses no more than it has asked for is evicted last anyhow.
	const modest = "image: IMAGE, resources: {requests: {memory: 64Mi}}"
	c.run(space, "sleeper", strings.Replace(sleeper, "image: IMAGE", modest, 1))
	const writer = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, 'dd if=/dev/zero of=/data/file bs=1M count=COUNT; exec sleep 1000000']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: VOLUME}]
`
	write := func(name, count, volume string) {
		c.Helper()
		c.apply(space, strings.NewReplacer("NAME", name, "COUNT", count, "VOLUME", volume).Replace(writer))
		c.awaitField(space, "pod/"+name, ".status.reason", "Evicted")
		c.Logf("%s: %s", name, c.field(space, "pod/"+name, ".status.message"))
	}
	write("fills-volume", "8", "{sizeLimit: 1Mi}")
	// The node has 300 MiB left from now on.
	least := fmt.Sprint(c.summary(n).Node.Memory.AvailableBytes - 300<<20)
	c.restartKubelet(n, map[string]any{
		"evictionHard": map[string]any{"memory.available": least}, "evictionPressureTransitionPeriod": "1s",
	})
	write("fills-memory", "450", "{medium: Memory}")
	c.awaitField("", "node/"+n.name, ".status.conditions[?(@.type==\"MemoryPressure\")].status", "False")
	c.restartKubelet(n, nil)
	if phase := c.field(space, "pod/sleeper", ".status.phase"); phase != "Running" {
		c.Errorf("the pod that uses nothing is %s", phase)
	}
}

// restartKubelet starts kubelet with more keys in its configuration.
func (c *cluster) restartKubelet(n *node, more map[string]any) {
	c.Helper()
	n.writeConfigs(more)
	n.kill("kubelet")
	n.startKubelet()
	c.await("kubelet answers", func() bool {
		_, err := c.try("", "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/stats/summary")
		return err == nil
	})
}

func testHundredPods(c *cluster) {
	space, n := c.space(), c.nodes[0]
	before := c.summary(n).Node.Memory.WorkingSetBytes
	begin := time.Now()
	c.apply(space, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: many}
spec:
  replicas: 100
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: IMAGE, command: [sleep, "1000000"]}]
`)
	c.kubectl("rollout", "status", "deployment/many", "--namespace", space, "--timeout=10m")
	c.Logf("100 pods rolled out after %s", since(begin))
	after := c.summary(n).Node.Memory.WorkingSetBytes
	c.Logf("the node's working set grew by %.1f MiB for each pod", float64(after-before)/(1<<20)/100)
	addresses := strings.Fields(c.field(space, "pods", ".items[*].status.podIP"))
	seen := make(map[string]bool)
	for _, a := range addresses {
		seen[a] = true
	}
	if len(seen) != 100 {
		c.Errorf("%d addresses", len(seen))
	}
	begin = time.Now()
	c.kubectl("delete", "deployment", "many", "--namespace", space, "--cascade=foreground", "--timeout=10m")
	c.await("no sandbox is left", func() bool { return len(n.entries("sandboxes")) == 0 })
	c.Logf("deleted after %s", since(begin))
}
