package plan

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/appc/spec/schema"

	"kurma.io/stager/manifest"
)

// example returns the specification's manifest, for this machine.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../manifest/testdata/example.json")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"amd64": "amd64", "arm64": "aarch64"}
	return string(bytes.Replace(text, []byte(`"amd64"`), []byte(strconv.Quote(labels[runtime.GOARCH])), 1))
}

func TestManifestWithoutKurmaVersionIsWarnedAbout(t *testing.T) {
	without := strings.Replace(example(t), `"kurmaVersion": "0.4.1",`, "", 1)
	for text, want := range map[string]bool{example(t): false, without: true} {
		m, err := manifest.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		pod, err := Decide(m, able, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(pod.Warnings, "\n"), "kurmaVersion"); got != want {
			t.Errorf("warnings %q", pod.Warnings)
		}
	}
}

// A manifest that a program has made, and did not read, is refused like one that was read.
func TestAManifestThatWasNotReadIsRefused(t *testing.T) {
	order, id := map[string][]string{}, "sha512-"+strings.Repeat("0", 128)
	pod := &manifest.Pod{PodManifest: new(schema.PodManifest)}
	for want, m := range map[string]manifest.Manifest{
		"manifest: images: missing":            {},
		"manifest: pod: missing":               {Images: map[string]*manifest.Image{}, AppImageOrder: order, Pod: &manifest.Pod{}},
		"manifest: images." + id + ": missing": {Images: map[string]*manifest.Image{id: nil}, AppImageOrder: order, Pod: pod},
	} {
		if decided, err := Decide(&m, able, nil, nil); err == nil || err.Error() != want {
			t.Errorf("%v, %v, want %q", decided, err, want)
		}
	}
}

func TestFatesOfNoIsolatorsAreEmptyLists(t *testing.T) {
	if text, err := json.Marshal(Fates{}); err != nil || string(text) != `{"app":[],"pod":[]}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestOneFileIsTheLogOfOneApp(t *testing.T) {
	m, err := manifest.Read(strings.NewReader(example(t)))
	if err != nil {
		t.Fatal(err)
	}
	m.StagerConfig = json.RawMessage(`{"log": {"path": "/volumes/log/0.log"}}`)
	if _, err := Decide(m, able, nil, nil); err != nil {
		t.Errorf("a pod of one app: %v", err)
	}
	other := m.Pod.Apps[0]
	other.Name = "other"
	m.Pod.Apps, m.AppImageOrder["other"] = append(m.Pod.Apps, other), m.AppImageOrder[m.Pod.Apps[0].Name.String()]
	_, err = Decide(m, able, nil, nil)
	wantError(t, err, `stagerConfig.log.path: "/volumes/log/0.log"`, "has 2")
}
