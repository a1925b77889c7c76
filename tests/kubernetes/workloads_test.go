package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func testService(c *cluster) {
	space, n := c.space(), c.nodes[0]
	c.apply(space, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`)
	c.rollOut(space, "deployment/web", web)
	c.run(space, "sleeper", sleeper)
	want := c.names(space, "pods --selector=app=web")
	c.await("the service's address leads to both pods", func() bool {
		out, err := c.try("", "exec", "--namespace", space, "sleeper", "--", "sh", "-c",
			"for i in $(seq 30); do wget -q -O - http://$WEB_SERVICE_HOST:$WEB_SERVICE_PORT/name; done | sort -u")
		return err == nil && slices.Equal(strings.Fields(out), want)
	})
	port := c.field(space, "service/web", ".spec.ports[0].nodePort")
	c.await("the node's port leads to a pod", func() bool {
		out, err := c.fetch("http://" + n.address + ":" + port + "/name")
		return err == nil && slices.Contains(want, strings.TrimSpace(out))
	})
	c.run(space, "host-port", `
apiVersion: v1
kind: Pod
metadata: {name: host-port}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, 'mkdir /www; echo here >/www/place; exec httpd -f -p 80 -h /www']
    ports: [{containerPort: 80, hostPort: 8081}]
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
`)
	if out, err := c.fetch("http://" + n.address + ":8081/place"); err != nil || out != "here\n" {
		c.Errorf("the pod's port on the node: %q, %v", out, err)
	}
	c.run(space, "on-host", `
apiVersion: v1
kind: Pod
metadata: {name: on-host}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: IMAGE, command: [sleep, "1000000"]}]
`)
	out := c.sh(space, "on-host", "hostname; ip address show eth0")
	if !strings.HasPrefix(out, n.name+"\n") || !strings.Contains(out, n.address+"/24") {
		c.Errorf("a pod on the node's network sees %q", out)
	}
}

func testConfiguration(c *cluster) {
	space := c.space()
	c.run(space, "reader", strings.ReplaceAll(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, file.txt: "a line\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: open sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: reader, labels: {app: reader}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000}
  containers:
  - name: main
    image: IMAGE
    command: [sleep, "1000000"]
    env:
    - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: keys, key: password}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
    envFrom: [{configMapRef: {name: settings}, prefix: S_}]
    resources: {limits: {memory: 256Mi}}
    volumeMounts:
    - {name: program, mountPath: /kubernetes, readOnly: true}
    - {name: settings, mountPath: /settings}
    - {name: settings, mountPath: /one/file.txt, subPath: file.txt}
    - {name: keys, mountPath: /keys, readOnly: true}
    - {name: projected, mountPath: /projected}
    - {name: image, mountPath: /image}
    - {name: image, mountPath: /programs, subPath: bin}
  volumes:
  - {name: image, image: {reference: IMAGE, pullPolicy: IfNotPresent}}
  - {name: program, hostPath: {path: PROGRAM, type: File}}
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys, defaultMode: 0440}}
  - name: projected
    projected:
      sources:
      - serviceAccountToken: {path: token, audience: tests, expirationSeconds: 3600}
      - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
`, "PROGRAM", environment(c.T, "KUBERNETES")))
	out := c.sh(space, "reader", `id -u; id -g; id -G
echo "$COLOR $PASSWORD $NODE $MEMORY $S_color"
cat /settings/color; echo; cat /settings/file.txt /one/file.txt /keys/password; echo
cat /projected/labels; echo; grep -c '^ey.*[.]ey' /projected/token`)
	want := fmt.Sprintf(`1000
1001
1001 2000
blue open sesame %s %d blue
blue
a line
a line
open sesame
app="reader"
1
`, c.nodes[0].name, 256<<20)
	if out != want {
		c.Errorf("the pod sees\n%s\nwant\n%s", out, want)
	}
	out = c.sh(space, "reader", "/kubernetes kubectl get pod reader -o jsonpath={.metadata.uid}")
	if uid := c.field(space, "pod/reader", ".metadata.uid"); out != uid {
		c.Errorf("the API says to the pod %q, want %s", out, uid)
	}
	out = c.sh(space, "reader", "/image/bin/busybox echo executed; ls /programs/busybox; touch /image/x 2>/dev/null || echo refused")
	if out != "executed\n/programs/busybox\nrefused\n" {
		c.Errorf("the volume that is an image: %q", out)
	}
	c.kubectl("patch", "configmap", "settings", "--namespace", space, "--patch", `{"data": {"color": "red"}}`)
	c.await("the pod sees the change", func() bool { return c.sh(space, "reader", "cat /settings/color") == "red" })
}

// testUsers has pods with users of their own: kubelet gives each other numbers.
func testUsers(c *cluster) {
	space := c.space()
	c.apply(space, `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
`)
	for _, name := range []string{"first", "second"} {
		c.run(space, name, strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 2000}
  initContainers: [{name: init, image: IMAGE, command: [sh, -c, 'touch /data/init; chown 33:44 /data/init'], volumeMounts: [{name: data, mountPath: /data}]}]
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, 'mkdir /www; echo here >/www/place; exec httpd -f -p 80 -h /www']
    readinessProbe: {httpGet: {path: /place, port: 80}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: settings, configMap: {name: settings}}
`, "NAME", name))
		out := c.sh(space, name, "touch /data/main /memory/main; stat -c '%n %u:%g' / /data/init /data/main /memory/main; cat /settings/color; id -u; "+
			"cat /var/run/secrets/kubernetes.io/serviceaccount/token | grep -c '^ey'")
		if want := "/ 0:0\n/data/init 33:44\n/data/main 0:2000\n/memory/main 0:2000\nblue0\n1\n"; out != want {
			c.Errorf("a pod sees\n%s\nwant\n%s", out, want)
		}
	}
	const mapping = "tr -s ' ' </proc/self/uid_map"
	first, second := c.sh(space, "first", mapping), c.sh(space, "second", mapping)
	var inside, outside, size int
	if _, err := fmt.Sscan(first, &inside, &outside, &size); err != nil || inside != 0 || outside < 65536 || size != 65536 || first == second {
		c.Errorf("the pods have the users %q and %q", first, second)
	}
}

func testInitAndSidecar(c *cluster) {
	space := c.space()
	c.apply(space, `
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      initContainers:
      - name: first
        image: IMAGE
        command: [sh, -c, 'echo first >>/data/log']
        volumeMounts: &data [{name: data, mountPath: /data}]
      - name: sidecar
        image: IMAGE
        restartPolicy: Always
        command:
        - sh
        - -c
        - |
          trap "echo ended; exit 0" TERM
          echo sidecar >>/data/log
          touch /data/up
          while :; do sleep 1 & wait $!; done
        startupProbe: {exec: {command: [cat, /data/up]}, periodSeconds: 1, failureThreshold: 30}
        volumeMounts: *data
      - {name: third, image: IMAGE, command: [sh, -c, 'echo third >>/data/log'], volumeMounts: *data}
      containers:
      - {name: main, image: IMAGE, command: [cat, /data/log], volumeMounts: *data}
      volumes: [{name: data, emptyDir: {}}]
`)
	c.kubectl("wait", "--namespace", space, "--for=condition=Complete", "job/work", limit())
	for container, want := range map[string]string{"main": "first\nsidecar\nthird\n", "sidecar": "ended\n"} {
		if log := c.kubectl("logs", "job/work", "--namespace", space, "--container", container); log != want {
			c.Errorf("the log of %s is %q, want %q", container, log, want)
		}
	}
}

func testJobs(c *cluster) {
	space := c.space()
	template := func(script string) string {
		const text = `{spec: {restartPolicy: Never, containers: [{name: main, image: IMAGE, command: [sh, -c, %s]}]}}`
		return fmt.Sprintf(text, script)
	}
	c.apply(space, `
apiVersion: batch/v1
kind: Job
metadata: {name: three}
spec: {completions: 3, parallelism: 2, template: `+template("echo done")+`}
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec: {backoffLimit: 0, template: `+template("exit 3")+`}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: `+template("echo tick")+`}}}
`)
	c.kubectl("wait", "--namespace", space, "--for=condition=Complete", "job/three", limit())
	if log := c.kubectl("logs", "--namespace", space, "--selector=job-name=three"); log != "done\ndone\ndone\n" {
		c.Errorf("three jobs say %q", log)
	}
	c.kubectl("wait", "--namespace", space, "--for=condition=Failed", "job/fails", limit())
	end := c.field(space, "pods --selector=job-name=fails",
		".items[0].status.containerStatuses[0].state.terminated['reason','exitCode']")
	if end != "Error 3" {
		c.Errorf("the job that fails ended with %q", end)
	}
	c.kubectl("create", "job", "now", "--from=cronjob/tick", "--namespace", space)
	c.kubectl("wait", "--namespace", space, "--for=condition=Complete", "job/now", limit())
	c.kubectl("wait", "--namespace", space, "cronjob/tick", "--for=jsonpath={.status.lastSuccessfulTime}", limit())
}

func testDaemonSet(c *cluster) {
	space := c.space()
	c.rollOut(space, "daemonset/each", each)
	if pods := c.names(space, "pods"); len(pods) != len(c.nodes) {
		c.Errorf("pods %q on %d nodes", pods, len(c.nodes))
	}
}

// each is a DaemonSet.
const each = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: each}
spec:
  selector: {matchLabels: {app: each}}
  template:
    metadata: {labels: {app: each}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: IMAGE, command: [sleep, "1000000"]}]
`

func testStatefulSet(c *cluster) {
	space, data := c.space(), c.nodes[0].path("data")
	c.rollOut(space, "statefulset/db", strings.ReplaceAll(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: IMAGE
        command: [sh, -c, 'echo start >>/data/log; touch /tmp/up; exec sleep 1000000']
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        lifecycle:
          postStart: {exec: {command: [sh, -c, 'until [ -e /tmp/up ]; do sleep .1; done; echo post-start >>/data/log']}}
          preStop: {exec: {command: [sh, -c, 'echo pre-stop >>/data/log']}}
        volumeMounts: [{name: data, mountPath: /data, subPathExpr: $(POD)}]
      volumes: [{name: data, hostPath: {path: DATA, type: DirectoryOrCreate}}]
`, "DATA", data))
	uid := c.field(space, "pod/db-0", ".metadata.uid")
	c.kubectl("delete", "pod", "db-0", "--namespace", space, limit())
	c.kubectl("wait", "--namespace", space, "--for=create", "pod/db-0", limit())
	c.kubectl("rollout", "status", "statefulset/db", "--namespace", space, limit())
	if now := c.field(space, "pod/db-0", ".metadata.uid"); now == uid {
		c.Error("the pod is the same")
	}
	for pod, want := range map[string]string{
		"db-0": "start post-start pre-stop start post-start", "db-1": "start post-start",
	} {
		log, err := os.ReadFile(filepath.Join(data, pod, "log"))
		if got := strings.Join(strings.Fields(string(log)), " "); err != nil || got != want {
			c.Errorf("%s has %q (%v), want %q", pod, got, err, want)
		}
	}
}

func testProbes(c *cluster) {
	space := c.space()
	c.apply(space, `
apiVersion: v1
kind: Pod
metadata: {name: dies}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: IMAGE
    command:
    - sh
    - -c
    - |
      echo run >>/data/log
      echo begin
      touch /tmp/live
      if [ $(wc -l </data/log) = 1 ]; then sleep 2; rm /tmp/live; fi
      exec sleep 1000000
    startupProbe: {exec: {command: [cat, /tmp/live]}, periodSeconds: 1, failureThreshold: 30}
    livenessProbe: {exec: {command: [cat, /tmp/live]}, periodSeconds: 1, failureThreshold: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`)
	c.awaitField(space, "pod/dies", ".status.containerStatuses[0].restartCount", "1")
	c.kubectl("wait", "--namespace", space, "--for=condition=Ready", "pod/dies", limit())
	if log := c.kubectl("logs", "dies", "--namespace", space, "--previous"); log != "begin\n" {
		c.Errorf("the log of the run before is %q", log)
	}
	// It is process 1 of its PID namespace, which no signal ends that it does not handle.
	if code := c.field(space, "pod/dies", ".status.containerStatuses[0].lastState.terminated.exitCode"); code != "137" {
		c.Errorf("the run before ended with %s", code)
	}
}
