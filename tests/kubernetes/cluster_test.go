package kubernetes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	controlAddress = "10.98.0.1"
	serviceAddress = "10.96.0.1" // of the API
	registryPort   = "5000"
	token          = "tests"
	// patience is how long a test waits: a longer wait means that something hangs. The machine may be busy.
	patience = 3 * time.Minute
)

// cluster is a control plane with its nodes.
type cluster struct {
	*testing.T

	dir   string
	nodes []*node
}

// newCluster starts a cluster of nodes that are ready. All ends with the test.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir()}
	c.writeKeys()
	c.serveImages()
	begin := time.Now()
	const storage = "http://127.0.0.1:2379"
	c.start("etcd", "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", storage, "--advertise-client-urls", storage, "--listen-peer-urls", "http://127.0.0.1:2380")
	c.start("kube-apiserver", "--etcd-servers", storage, "--advertise-address", controlAddress,
		"--token-auth-file", c.path("tokens"), "--authorization-mode", "AlwaysAllow", "--allow-privileged",
		"--kubelet-preferred-address-types", "InternalIP", // there is no DNS
		"--tls-cert-file", c.path("server.pem"), "--tls-private-key-file", c.path("server-key.pem"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--service-account-issuer", "https://kubernetes.default",
		"--service-account-key-file", c.path("server-key.pem"),
		"--service-account-signing-key-file", c.path("server-key.pem"),
		"--default-not-ready-toleration-seconds", "5", "--default-unreachable-toleration-seconds", "5")
	c.await("the API is ready", func() bool {
		_, err := c.fetch("https://127.0.0.1:6443/readyz")
		return err == nil
	})
	c.Logf("API ready after %s", since(begin))
	// 100 pods are made as fast as the runtime can.
	common := []string{
		"--kubeconfig", c.path("kubeconfig"), "--leader-elect=false", "--cert-dir", c.path("certificates"),
		"--kube-api-qps", "200", "--kube-api-burst", "400",
	}
	c.start("kube-controller-manager", append(common,
		"--service-account-private-key-file", c.path("server-key.pem"), "--root-ca-file", c.path("ca.pem"),
		"--node-monitor-period", "1s", "--node-monitor-grace-period", "15s")...)
	c.start("kube-scheduler", common...)
	for i := range nodes {
		c.nodes = append(c.nodes, c.newNode(i+1))
	}
	for _, n := range c.nodes {
		c.kubectl("wait", "--for=create", "node/"+n.name, limit())
		c.kubectl("wait", "--for=condition=Ready", "node/"+n.name, limit())
		c.Logf("%s ready after %s", n.name, since(n.begin))
	}
	return c
}

// on returns the cluster for a part of the test that has made it.
func (c *cluster) on(t *testing.T) *cluster {
	part := &cluster{T: t, dir: c.dir}
	for _, n := range c.nodes {
		same := *n
		same.c = part
		part.nodes = append(part.nodes, &same)
	}
	return part
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func limit() string { return "--timeout=" + patience.String() }

func since(begin time.Time) time.Duration { return time.Since(begin).Round(10 * time.Millisecond) }

// eventually polls a condition until it holds, and returns true, or returns false if it does not hold within the limit.
func eventually(limit time.Duration, condition func() bool) bool {
	end, look := time.NewTimer(limit), time.NewTicker(50*time.Millisecond)
	defer end.Stop()
	defer look.Stop()
	for !condition() {
		select {
		case <-end.C:
			return false
		case <-look.C:
		}
	}
	return true
}

func (c *cluster) await(what string, condition func() bool) {
	c.Helper()
	if !eventually(patience, condition) {
		c.Fatalf("%s: not within %s", what, patience)
	}
}

func environment(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run make test-kubernetes", name)
	}
	return value
}

// start starts one of Kubernetes' programs until the test's end.
func (c *cluster) start(name string, args ...string) {
	c.Helper()
	cmd := exec.Command(environment(c.T, "KUBERNETES"), append([]string{name}, args...)...)
	log, err := os.Create(c.path(name + ".log"))
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			c.Errorf("%s has ended: %v", name, err)
		}
		if c.Failed() {
			c.Logf("%s says at its end:\n%s", name, tail(log.Name()))
		}
	})
}

// tail returns a log's last lines.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "")
}

// fetch returns what a server answers.
func (c *cluster) fetch(url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a server of this test
		DisableKeepAlives: true,
	}, Timeout: 5 * time.Second}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		c.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// writeKeys writes the cluster's authority, the API's certificate, the tokens and the clients' configurations.
func (c *cluster) writeKeys() {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := c.writeKey("ca-key.pem")
	c.writeCertificate("ca.pem", authority, authority, key, key)
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "api"}, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"kubernetes.default.svc", "kubernetes.default"},
	}
	for _, a := range []string{"127.0.0.1", controlAddress, serviceAddress} {
		server.IPAddresses = append(server.IPAddresses, net.ParseIP(a))
	}
	c.writeCertificate("server.pem", server, authority, c.writeKey("server-key.pem"), key)
	c.write("tokens", token+`,tests,tests,"system:masters"`+"\n")
	for name, address := range map[string]string{"kubeconfig": "127.0.0.1", "node-kubeconfig": controlAddress} {
		c.write(name, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
			clusters: [{name: c, cluster: {server: "https://%s:6443", certificate-authority: %s}}],
			users: [{name: u, user: {token: %s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`,
			address, c.path("ca.pem"), token))
	}
}

func (c *cluster) write(name, text string) {
	c.Helper()
	c.must(os.MkdirAll(filepath.Dir(c.path(name)), 0o755))
	c.must(os.WriteFile(c.path(name), []byte(text), 0o600))
}

func (c *cluster) writeKey(name string) *ecdsa.PrivateKey {
	c.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.Fatal(err)
	}
	data, err := x509.MarshalECPrivateKey(key) // the form that the API reads
	if err != nil {
		c.Fatal(err)
	}
	c.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: data})))
	return key
}

func (c *cluster) writeCertificate(name string, of, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) {
	c.Helper()
	data, err := x509.CreateCertificate(rand.Reader, of, parent, &key.PublicKey, parentKey)
	if err != nil {
		c.Fatal(err)
	}
	c.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: data})))
}

// client returns the command of kubectl.
func (c *cluster) client(args ...string) *exec.Cmd {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	c.Cleanup(cancel)
	args = append([]string{"kubectl", "--kubeconfig", c.path("kubeconfig")}, args...)
	cmd := exec.CommandContext(ctx, environment(c.T, "KUBERNETES"), args...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir)
	return cmd
}

// try runs kubectl, and returns what it has written and whether it failed.
func (c *cluster) try(stdin string, args ...string) (string, error) {
	c.Helper()
	cmd := c.client(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("kubectl %q: %w: %s", args, err, errs.String())
	}
	return out.String(), err
}

// kubectl runs kubectl, which must succeed, and returns what it has written.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	out, err := c.try("", args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// apply makes objects. IMAGE in their text is the image of busybox.
func (c *cluster) apply(space, objects string) {
	c.Helper()
	if _, err := c.try(strings.ReplaceAll(objects, "IMAGE", image), "apply", "--namespace", space, "-f", "-"); err != nil {
		c.Fatal(err)
	}
}

// space makes a Kubernetes namespace, which is deleted with all that is in it at the test's end.
func (c *cluster) space() string {
	c.Helper()
	name := strings.ToLower(c.Name()[strings.LastIndexByte(c.Name(), '/')+1:])
	c.kubectl("create", "namespace", name)
	c.Cleanup(func() {
		if c.Failed() {
			for _, what := range []string{"events", "pods"} {
				out, err := c.try("", "get", what, "--namespace", name, "-o", "wide")
				c.Logf("%s: %v\n%s", what, err, out)
			}
		}
		c.kubectl("delete", "namespace", name, "--ignore-not-found", limit())
	})
	c.kubectl("wait", "--namespace", name, "--for=create", "serviceaccount/default", limit())
	c.kubectl("wait", "--namespace", name, "--for=create", "configmap/kube-root-ca.crt", limit())
	return name
}

// field returns a field of an object, or of those of a kind, by kubectl's JSONPath.
func (c *cluster) field(space, object, path string) string {
	c.Helper()
	args := []string{"get", "--namespace", space, "-o", "jsonpath={" + path + "}"}
	return c.kubectl(append(args, strings.Fields(object)...)...)
}

// awaitField waits until a field of an object has a value.
func (c *cluster) awaitField(space, object, path, value string) {
	c.Helper()
	c.kubectl("wait", "--namespace", space, object, "--for=jsonpath={"+path+"}="+value, limit())
}
