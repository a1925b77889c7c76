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
)

// metadataPaths are all that the service has for a pod of one app, "a", below
// its URL, with the types that appc has for them.
func metadataPaths() map[string]string {
	const text, json = "text/plain; charset=us-ascii", "application/json"
	return map[string]string{
		"/acMetadata/v1/pod/annotations": json, "/acMetadata/v1/pod/manifest": json, "/acMetadata/v1/pod/uuid": text,
		"/acMetadata/v1/apps/a/annotations": json, "/acMetadata/v1/apps/a/image/manifest": json, "/acMetadata/v1/apps/a/image/id": text,
	}
}

// Two pods in the host's network: each has a token of its own of 128 bits or more
// without which, or with the other's, its service tells nothing.
func TestClause_C_MDS_01_TokensOfTwoPods(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	doc := podOf(shell("a", `echo "$AC_METADATA_URL"; wget -q -O - "$AC_METADATA_URL/acMetadata/v1/pod/uuid"; echo; exec sleep 1000`))
	doc.Isolators = []any{isolator("os/linux/namespaces", map[string]string{"net": "host"})}
	var pods []*pod
	var urls []*url.URL
	for _, name := range []string{"one", "two"} {
		p := b.up(name, doc)
		p.sees("a", "\n"+p.uuid+"\n")
		base, _, _ := strings.Cut(p.logs("a"), "\n")
		parsed, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		pods, urls = append(pods, p), append(urls, parsed)
	}
	for i, u := range urls {
		token := strings.TrimPrefix(u.Path, "/")
		bits, err := hex.DecodeString(token)
		if err != nil || len(bits)*8 < 128 || strings.Contains(token, pods[i].uuid) || u.Path == urls[1-i].Path {
			t.Errorf("pods' URLs %s", urls)
		}
		for _, wrong := range []string{urls[1-i].Path, "/" + pods[i].uuid, "/" + strings.Repeat("0", len(token)), u.Path[:len(u.Path)-1], u.Path + "0", ""} {
			tellsNothing(t, "http://"+u.Host+wrong, pods[i].uuid)
		}
	}
}

// tellsNothing asks for all, which must be answered with 404 and no secret.
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
	silentClients = 30
)

// A thousand requests at once from inside a pod are answered, with the exact types, while
// others are connected and say nothing, or half of something.
func TestClause_C_MDS_10_ThousandAtOnceInAPod(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	dir := b.folder("probe", 0o755)
	b.testProgram(dir)
	p := b.up("p", podOf(command("a", "/probe/probe", "metadata-load")).hostVolume("probe", dir, "/probe"))
	code, reason := p.exited("a")
	want := fmt.Sprintf("%d answers of %d kinds\n%s, %s\n", manyClients, len(metadataPaths()), p.uuid, suite.ids["busybox"])
	if diff := cmp.Diff(want, p.logs("a")); diff != "" || code != 0 {
		t.Errorf("exit code %d %s (-want +have):\n%s", code, reason, diff)
	}
	p.stop()
}

// probeMetadataLoad asks the service of the pod it is in.
func probeMetadataLoad() error {
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
	fmt.Printf("%d answers of %d kinds\n%s, %s\n", len(bodies), len(first), first["/acMetadata/v1/pod/uuid"], first["/acMetadata/v1/apps/a/image/id"])
	return nil
}

// askAtOnce has all clients connected before the first one asks, and all ask
// before they look at an answer.
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

// answerOf reads the body of an answer, which must be a good one of that type.
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
