package tests

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// metadataPaths returns all paths of the service for a pod of one app, "a", below its URL, with the
// content types that appc requires.
func metadataPaths() map[string]string {
	const text, json = "text/plain; charset=us-ascii", "application/json"
	return map[string]string{
		"/acMetadata/v1/pod/annotations": json, "/acMetadata/v1/pod/manifest": json, "/acMetadata/v1/pod/uuid": text,
		"/acMetadata/v1/apps/a/annotations": json, "/acMetadata/v1/apps/a/image/manifest": json, "/acMetadata/v1/apps/a/image/id": text,
	}
}

// service is the metadata service of a pod that is up in the host's network.
type service struct {
	*url.URL
	pod *harness.Pod
}

// twoServices starts two pods whose services this process can reach.
func twoServices(b *harness.Machine) [2]service {
	b.T.Helper()
	doc := harness.PodOf(suite.Shell("a", `echo "$AC_METADATA_URL"; wget -q -O - "$AC_METADATA_URL/acMetadata/v1/pod/uuid"; echo; exec sleep 1000`))
	doc.Isolators = []any{harness.Isolator("os/linux/namespaces", map[string]string{"net": "host"})}
	var all [2]service
	for i, name := range []string{"one", "two"} {
		p := b.Up(name, doc)
		p.Sees("a", "\n"+p.UUID+"\n")
		base, _, _ := strings.Cut(p.Logs("a"), "\n")
		parsed, err := url.Parse(base)
		if err != nil {
			b.T.Fatal(err)
		}
		all[i] = service{parsed, p}
	}
	return all
}

// Two pods in the host's network have different tokens of at least 128 bits. Without its pod's token,
// or with the other's, a service discloses nothing.
func TestTokensOfTwoPodsDiffer(t *testing.T) {
	clause.Covers(t, "C-MDS-01")
	t.Parallel()
	services := twoServices(suite.NewMachine(t))
	for i, s := range services {
		token, other := strings.TrimPrefix(s.Path, "/"), services[1-i]
		bits, err := hex.DecodeString(token)
		if err != nil || len(bits)*8 < 128 || strings.Contains(token, s.pod.UUID) || s.Path == other.Path {
			t.Errorf("pods' URLs %s and %s", s, other)
		}
		for _, wrong := range []string{other.Path, "/" + s.pod.UUID, "/" + strings.Repeat("0", len(token)), s.Path[:len(s.Path)-1], s.Path + "0", ""} {
			tellsNothing(t, "http://"+s.Host+wrong, s.pod.UUID)
		}
	}
}

// post sends a form to one of the service's paths for signatures.
func (s service) post(path string, fields url.Values) (status int, body string) {
	s.pod.T.Helper()
	response, err := http.PostForm(s.String()+"/acMetadata/v1/pod/hmac/"+path, fields)
	if err != nil {
		s.pod.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.pod.T.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A pod's service verifies only its own signatures with its own UUID: neither another pod's UUID nor
// another pod's signatures.
func TestSignaturesOfTwoPodsAreVerified(t *testing.T) {
	clause.Covers(t, "C-MDS-08", "C-MDS-09")
	t.Parallel()
	services := twoServices(suite.NewMachine(t))
	for i, s := range services {
		other := services[1-i]
		_, own := s.post("sign", url.Values{"content": {"farm"}})
		_, foreign := other.post("sign", url.Values{"content": {"farm"}})
		for _, tt := range []struct {
			content, uuid, signature string
			want                     int
		}{
			{"farm", s.pod.UUID, own, http.StatusOK},
			{"Farm", s.pod.UUID, own, http.StatusForbidden},
			{"farm", other.pod.UUID, own, http.StatusForbidden},
			{"farm", s.pod.UUID, foreign, http.StatusForbidden},
			{"farm", other.pod.UUID, foreign, http.StatusForbidden},
		} {
			status, _ := s.post("verify", url.Values{"content": {tt.content}, "uuid": {tt.uuid}, "signature": {tt.signature}})
			if status != tt.want || own == foreign {
				t.Errorf("pod %s answers %d to %+v, want %d", s.pod.UUID, status, tt, tt.want)
			}
		}
	}
}

// tellsNothing requests all paths; each answer must be 404 and must not contain the secret.
func tellsNothing(t *testing.T, base, secret string) {
	t.Helper()
	paths := []string{"", "/"}
	for path := range metadataPaths() {
		paths = append(paths, path)
	}
	for _, path := range paths {
		response, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusNotFound || string(body) != "not found\n" {
			t.Errorf("GET %s%s: %s, %q", base, path, response.Status, body)
		}
		if strings.Contains(fmt.Sprint(response.Header), secret) {
			t.Errorf("GET %s%s: %v", base, path, response.Header)
		}
	}
}

const (
	manyClients   = 1000
	silentClients = 20 // with the others no more than the service takes: on a slow machine it would drop those that have not asked yet
)

// The service answers a thousand requests at once from inside a pod, with the exact content types,
// while other clients are connected and send nothing or half a request.
func TestAThousandMetadataClientsAreAnsweredInAPod(t *testing.T) {
	clause.Covers(t, "C-MDS-10")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	p := b.Up("p", harness.PodOf(suite.Command("a", "/probe/probe", "metadata-load")).HostVolume("probe", dir, "/probe"))
	code, reason := p.Exited("a")
	want := fmt.Sprintf("%d answers of %d kinds\n%s, %s\n", manyClients, len(metadataPaths()), p.UUID, suite.IDs["busybox"])
	if diff := cmp.Diff(want, p.Logs("a")); diff != "" || code != 0 {
		t.Errorf("exit code %d %s (-want +have):\n%s", code, reason, diff)
	}
	p.Stop()
}

// probeMetadataLoad sends requests to the service of its pod.
func probeMetadataLoad(out io.Writer) error {
	base, err := url.Parse(os.Getenv("AC_METADATA_URL"))
	if err != nil {
		return err
	}
	for i := range silentClients {
		c, err := net.Dial("tcp4", base.Host)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /"[:i%6]); err != nil {
			return err
		}
	}
	var paths []string
	for path := range metadataPaths() {
		paths = append(paths, path)
	}
	bodies, err := askAtOnce(base, paths)
	if err != nil {
		return err
	}
	first := make(map[string]string)
	for i, body := range bodies {
		path := paths[i%len(paths)]
		if have, ok := first[path]; ok && have != body {
			return fmt.Errorf("%s is %q and %q", path, have, body)
		}
		first[path] = body
	}
	_, err = fmt.Fprintf(out, "%d answers of %d kinds\n%s, %s\n", len(bodies), len(first), first["/acMetadata/v1/pod/uuid"], first["/acMetadata/v1/apps/a/image/id"])
	return err
}

// askAtOnce connects all clients before the first one sends its request, and sends all requests before
// it reads an answer.
func askAtOnce(base *url.URL, paths []string) ([]string, error) {
	var connected, asked, done sync.WaitGroup
	connected.Add(manyClients)
	asked.Add(manyClients)
	bodies, errs := make([]string, manyClients), make([]error, manyClients)
	for i := range bodies {
		done.Go(func() {
			path := paths[i%len(paths)]
			c, err := net.Dial("tcp4", base.Host)
			connected.Done()
			connected.Wait()
			if err == nil {
				defer c.Close()
				_, err = fmt.Fprintf(c, "GET %s%s HTTP/1.1\r\nHost: %s\r\nMetadata-Flavor: AppContainer\r\n\r\n", base.Path, path, base.Host)
			}
			asked.Done()
			asked.Wait()
			if err == nil {
				bodies[i], err = answerOf(c, metadataPaths()[path])
			}
			errs[i] = err
		})
	}
	done.Wait()
	return bodies, errors.Join(errs...)
}

// answerOf reads the body of an answer, which must be 200 with that content type.
func answerOf(c net.Conn, contentType string) (string, error) {
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != contentType) {
		err = fmt.Errorf("%s, %s", response.Status, response.Header.Get("Content-Type"))
	}
	return string(body), err
}
