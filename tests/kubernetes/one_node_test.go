package kubernetes

import (
	"strings"
	"testing"
	"time"
)

// web is a Deployment of two pods of two containers each, with probes.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: http
        image: IMAGE
        command: [sh, -c, 'mkdir /www; hostname >/www/name; echo serving; exec httpd -f -p 8080 -h /www']
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /name, port: 8080}, periodSeconds: 1}
        livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
      - name: side
        image: IMAGE
        command: [sh, -c, 'trap "exit 0" TERM; touch /tmp/ready; while :; do sleep 1 & wait $!; done']
        startupProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, failureThreshold: 30}
        readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 1}
`

// sleeper is a pod in which tests execute commands.
const sleeper = `
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: IMAGE, command: [sleep, "1000000"]}]
`

func TestOneNode(t *testing.T) {
	c := newCluster(t, 1)
	for _, part := range []struct {
		name string
		run  func(*cluster)
	}{
		{"Deployment", testDeployment},
		{"Service", testService},
		{"Configuration", testConfiguration},
		{"Users", testUsers},
		{"InitAndSidecar", testInitAndSidecar},
		{"Jobs", testJobs},
		{"DaemonSet", testDaemonSet},
		{"StatefulSet", testStatefulSet},
		{"Probes", testProbes},
		{"Streams", testStreams},
		{"Rollout", testRollout},
		{"OutOfMemory", testOutOfMemory},
		{"Restarts", testRestarts},
		{"Stats", testStats},
		{"Drain", testDrain},
		{"Eviction", testEviction},
		{"HundredPods", testHundredPods},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(c.on(t)) })
	}
	c.nothingIsLeft()
}

// nothingIsLeft checks that the nodes have neither sandboxes nor containers.
func (c *cluster) nothingIsLeft() {
	c.Helper()
	for _, n := range c.nodes {
		c.await("no sandbox is left", func() bool { return len(n.entries("sandboxes")) == 0 })
		if left := append(n.entries("pods"), n.entries("containers")...); len(left) > 0 {
			c.Errorf("pods and containers %q are left", left)
		}
	}
}

// rollOut makes a Deployment, DaemonSet or StatefulSet, and waits until it is rolled out.
func (c *cluster) rollOut(space, object, text string) {
	c.Helper()
	c.apply(space, text)
	c.kubectl("rollout", "status", object, "--namespace", space, limit())
}

// run makes the pod of a text, and waits until it is ready.
func (c *cluster) run(space, pod, text string) {
	c.Helper()
	c.apply(space, text)
	c.kubectl("wait", "--namespace", space, "--for=condition=Ready", "pod/"+pod, limit())
}

// sh runs a shell's script in a pod's first container.
func (c *cluster) sh(space, pod, script string) string {
	c.Helper()
	return c.kubectl("exec", "--namespace", space, pod, "--", "sh", "-c", script)
}

// names returns the names of the objects of a kind.
func (c *cluster) names(space, kind string) []string {
	c.Helper()
	return strings.Fields(c.field(space, kind, ".items[*].metadata.name"))
}

func testDeployment(c *cluster) {
	space := c.space()
	for _, with := range []string{"a pull", "its image there"} {
		begin := time.Now()
		c.rollOut(space, "deployment/web", web)
		c.Logf("Deployment of 2×2 with %s rolled out after %s", with, since(begin))
		log := c.kubectl("logs", "deployment/web", "--namespace", space, "--container", "http")
		if log != "serving\n" {
			c.Errorf("log %q", log)
		}
		pods := c.names(space, "pods")
		for _, pod := range pods {
			side := []string{"exec", pod, "--namespace", space, "--container", "side", "--", "sh", "-c"}
			out := c.kubectl(append(side, "wget -q -O - http://127.0.0.1:8080/name")...)
			if out != pod+"\n" {
				c.Errorf("pod %s says %q", pod, out)
			}
			_, err := c.try("", append(side, "echo oh >&2; exit 3")...)
			if err == nil || !strings.Contains(err.Error(), "oh\n") || !strings.Contains(err.Error(), "exit code 3") {
				c.Errorf("a command that fails: %v", err)
			}
		}
		if len(pods) != 2 {
			c.Errorf("pods %q", pods)
		}
		begin = time.Now()
		c.kubectl("delete", "deployment", "web", "--namespace", space, "--cascade=foreground", limit())
		c.await("no pod is left", func() bool { return len(c.names(space, "pods")) == 0 })
		c.Logf("deleted after %s", since(begin))
	}
	c.nothingIsLeft()
}

func testRollout(c *cluster) {
	space := c.space()
	c.rollOut(space, "deployment/web", web)
	first := c.names(space, "pods")
	c.kubectl("set", "env", "deployment/web", "--namespace", space, "COLOR=red")
	c.kubectl("rollout", "status", "deployment/web", "--namespace", space, limit())
	show := []string{"exec", "deployment/web", "--namespace", space, "--", "sh", "-c", "echo $COLOR"}
	if out := c.kubectl(show...); out != "red\n" {
		c.Errorf("after the change the variable is %q", out)
	}
	c.kubectl("rollout", "undo", "deployment/web", "--namespace", space)
	c.kubectl("rollout", "status", "deployment/web", "--namespace", space, limit())
	c.await("the second revision's pods are gone", func() bool { return len(c.names(space, "pods")) == 2 })
	out := c.kubectl(show...)
	if now := c.names(space, "pods"); out != "\n" || strings.Join(now, " ") == strings.Join(first, " ") {
		c.Errorf("after undo: variable %q, pods %q, first %q", out, now, first)
	}
}
