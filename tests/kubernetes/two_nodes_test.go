package kubernetes

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A Deployment spreads over two nodes. When one node dies, its pods run on the other; when it has booted, it takes pods
// again.
func TestTwoNodes(t *testing.T) {
	c := newCluster(t, 2)
	space, alive, dies := c.space(), c.nodes[0], c.nodes[1]
	c.apply(space, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`)
	c.rollOut(space, "deployment/web", strings.Replace(web, "  replicas: 2", `  replicas: 4
  strategy: {rollingUpdate: {maxSurge: 0}}`, 1))
	c.rollOut(space, "daemonset/each", each)
	c.run(space, "sleeper", strings.Replace(sleeper, "spec:\n", "spec:\n  nodeName: "+alive.name+"\n", 1))
	on := func(n *node) []string {
		return c.names(space, "pods --selector=app=web --field-selector=status.phase=Running,spec.nodeName="+n.name)
	}
	if a, b := on(alive), on(dies); len(a) == 0 || len(b) == 0 || len(a)+len(b) != 4 {
		t.Fatalf("pods on the nodes: %q, %q", a, b)
	}
	answering := func() []string {
		out, _ := c.try("", "exec", "--namespace", space, "sleeper", "--", "sh", "-c",
			"for i in $(seq 60); do timeout 2 wget -q -O - http://$WEB_SERVICE_HOST/name; done | sort -u")
		return strings.Fields(out)
	}
	all := slices.Sorted(slices.Values(append(on(alive), on(dies)...)))
	c.await("pods of both nodes answer", func() bool { return slices.Equal(answering(), all) })

	begin := time.Now()
	dies.end()
	c.kubectl("wait", "--for=condition=Ready=Unknown", "node/"+dies.name, limit())
	t.Logf("the node's death was seen after %s", since(begin))
	c.await("four pods run on the other node", func() bool { return len(on(alive)) == 4 })
	c.awaitField(space, "deployment/web", ".status.availableReplicas", "4")
	t.Logf("its pods ran on the other node after %s", since(begin))
	c.await("pods of the other node answer", func() bool { return slices.Equal(answering(), on(alive)) })

	begin = time.Now()
	dies.boot()
	c.kubectl("wait", "--for=condition=Ready", "node/"+dies.name, limit())
	t.Logf("the node was ready again after %s", since(begin))
	c.kubectl("rollout", "status", "daemonset/each", "--namespace", space, limit())
	c.await("the dead pods are gone", func() bool { return len(c.names(space, "pods --selector=app=web")) == 4 })
	c.kubectl("rollout", "restart", "deployment/web", "--namespace", space)
	c.kubectl("rollout", "status", "deployment/web", "--namespace", space, limit())
	c.await("the booted node has pods", func() bool { return len(on(dies)) > 0 })
	c.kubectl("delete", "namespace", space, limit())
	c.nothingIsLeft()
}
