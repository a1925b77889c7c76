package kubernetes

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"os"
	"regexp"
	"strings"
)

func testStreams(c *cluster) {
	space := c.space()
	testAttach(c, space)
	testPortForward(c, space)
	c.run(space, "sleeper", sleeper)
	testCopy(c, space)
	out, err := c.try("one\ntwo\n", "exec", "-i", "--namespace", space, "sleeper", "--", "head", "-n", "2")
	if err != nil || out != "one\ntwo\n" {
		c.Errorf("a command with input: %q, %v", out, err)
	}
}

func testAttach(c *cluster, space string) {
	c.Helper()
	c.run(space, "listens", `
apiVersion: v1
kind: Pod
metadata: {name: listens}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    stdin: true
    command: [sh, -c, 'while read line; do echo "got $line"; [ "$line" != end ] || exit 4; done']
`)
	out, err := c.try("hello\nend\n", "attach", "-i", "listens", "--namespace", space)
	if out != "got hello\ngot end\n" {
		c.Errorf("attached: %q, %v", out, err)
	}
	c.awaitField(space, "pod/listens", ".status.containerStatuses[0].state.terminated.exitCode", "4")
}

func testPortForward(c *cluster, space string) {
	c.Helper()
	c.rollOut(space, "deployment/web", web)
	cmd := c.client("port-forward", "--namespace", space, "deployment/web", ":8080", "--address", "127.0.0.1")
	out, err := cmd.StdoutPipe()
	c.must(err)
	c.must(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	c.must(err)
	port := regexp.MustCompile(`127\.0\.0\.1:([0-9]+) `).FindStringSubmatch(line)
	if port == nil {
		c.Fatalf("port-forward says %q", line)
	}
	for range 3 {
		name, err := c.fetch("http://127.0.0.1:" + port[1] + "/name")
		if err != nil || !strings.HasPrefix(name, "web-") {
			c.Errorf("through port-forward: %q, %v", name, err)
		}
	}
}

func testCopy(c *cluster, space string) {
	c.Helper()
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	from, to := c.TempDir()+"/from", c.TempDir()+"/to"
	c.must(os.WriteFile(from, data, 0o644))
	c.kubectl("cp", from, space+"/sleeper:/tmp/copy")
	c.kubectl("cp", space+"/sleeper:/tmp/copy", to)
	if back, err := os.ReadFile(to); err != nil || !bytes.Equal(back, data) {
		c.Errorf("a file of %d bytes comes back with %d: %v", len(data), len(back), err)
	}
}
