package manifest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/clause"
)

// example is the document's example, with an image for this machine.
func example(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "example.json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(data), `"amd64"`, thisArch, 1)
}

// thisArch is the label that an image for this machine has, as JSON.
var thisArch = strconv.Quote(architectures(runtime.GOARCH)[0])

const (
	natsID  = "sha512-de8f22333d0234270a8a18d47dcc475a69489ab18bf7e7fbbcdee50b6d0a1c8f536750c5c55e9a0e63574053f2fc51bbba20caedb14220e0c157e6d8fb35f4fc"
	otherID = "sha512-00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
)

// The document's own example has no name, no stagerConfig to speak of, and an
// app that comes from the image.
func TestReadSpecificationExample(t *testing.T) {
	m, err := Read(strings.NewReader(example(t)))
	if err != nil {
		t.Fatal(err)
	}
	if m.KurmaVersion != "0.4.1" || m.Name != "" || string(m.StagerConfig) != "{}" {
		t.Errorf("got version %q, name %q, stagerConfig %q", m.KurmaVersion, m.Name, m.StagerConfig)
	}
	apps := m.Apps()
	if len(apps) != 1 {
		t.Fatalf("got %d apps, want 1", len(apps))
	}
	app := apps[0]
	if app.Name != "nats" || app.ImageID != natsID || app.Image.Name != "registry-1.docker.io/library/nats" {
		t.Errorf("got app %q of image %q (%s)", app.Name, app.Image.Name, app.ImageID)
	}
	if diff := cmp.Diff([]string{"/gnatsd", "-c", "/gnatsd.conf"}, []string(app.App.Exec)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{natsID}, app.Layers); diff != "" {
		t.Error(diff)
	}
	if len(app.App.Ports) != 3 {
		t.Errorf("got %d ports, want 3", len(app.App.Ports))
	}
}

// edited returns the example with one part of its text replaced.
func edited(t testing.TB, old, new string) string {
	t.Helper()
	text := example(t)
	if !strings.Contains(text, old) {
		t.Fatalf("the example does not contain %q", old)
	}
	return strings.Replace(text, old, new, 1)
}

const (
	podApp   = `"name": "nats",`
	version  = `"kurmaVersion": "0.4.1",`
	config   = `"stagerConfig": {}`
	image    = `"acVersion": "0.7.0",`
	pod      = `"acVersion": "0.7.4",`
	imageApp = `"user": "0",`
	order    = `"nats": ["` + natsID + `"]`
)

func TestReadAcceptsEveryForm(t *testing.T) {
	tests := []struct{ name, clauses, old, new string }{
		{"no kurmaVersion", "", version, ``},
		{"name", "", version, version + `"name": "example1",`},
		{"stagerConfig null", "", config, `"stagerConfig": null`},
		{"stagerConfig absent", "", `,` + "\n\t" + config, ``},
		{"unknown fields", "", version, version + `"x": [1, {"y": null}],`},
		{"unknown fields deep", "", podApp, podApp + `"x": {"y": 1},`},
		{"null lists in the pod", "", pod, pod + `"volumes": null, "isolators": null, "annotations": null, "ports": null,`},
		{"null lists in the app", "", podApp, podApp + `"mounts": null, "annotations": null, "app": null,`},
		{"null lists in the image's app", "", imageApp, imageApp + `"isolators": null, "environment": null, "mountPoints": null, "eventHandlers": null,`},
		{"unknown isolators", "C-ISO-04", imageApp, imageApp + `"isolators": [{"name": "os/linux/namespaces", "value": {}}, {"name": "x/y", "value": 1}],`},
		{"isolators without a value", "C-ISO-04", imageApp, imageApp + `"isolators": [{"name": "x/y"}, {"name": "x/z", "value": null}],`},
		{"isolator of an odd name", "", pod, pod + `"isolators": [{"name": "Not An Identifier", "value": 1}],`},
		{"unknown isolators in the pod", "", pod, pod + `"isolators": [{"name": "x/y", "value": {"a": [1]}}],`},
		{"user annotations and labels", "C-UAN-01", podApp, podApp + `"userAnnotations": {"os/linux/namespaces": "x"}, "userLabels": {"": ""},`},
		{"handler without exec", "C-EVT-08", imageApp, imageApp + `"eventHandlers": [{"name": "pre-start"}],`},
		{"image without labels", "C-LAB-01", `"labels": [{`, `"otherLabels": [{`},
		{"arch without os", "C-LAB-01", `"name": "os",`, `"name": "other",`},
		{"keys in other case", "", `"pod"`, `"Pod"`},
		{"repeated layer", "", order, `"nats": ["` + natsID + `", "` + natsID + `"]`},
		{"app of a 200 character name", "", podApp, `"name": "` + strings.Repeat("a", 200) + `",`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			text := edited(t, test.old, test.new)
			if strings.Contains(test.name, "200 character") {
				text = strings.Replace(text, `"nats": [`, `"`+strings.Repeat("a", 200)+`": [`, 1)
			}
			if _, err := Read(strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The specification itself writes the key of the supplementary groups in two ways.
func TestKeysAreReadInAnyCase(t *testing.T) {
	clause.Covers(t, "C-USR-05")
	m, err := Read(strings.NewReader(edited(t, imageApp, imageApp+`"supplementaryGids": [5, 7],`)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{5, 7}, m.Apps()[0].App.SupplementaryGIDs); diff != "" {
		t.Error(diff)
	}
}

func TestReadRefusesWrongFields(t *testing.T) {
	tests := []struct {
		name, clauses, old, new string
		want                    []string // all in the error
	}{
		{"kurmaVersion a number", "", version, `"kurmaVersion": 4,`, []string{"kurmaVersion: 4: must be a string"}},
		{"name a list", "", version, version + `"name": [1, 2],`, []string{"name: [1, 2]: must be a string"}},
		{"pod absent", "", `"pod"`, `"pot"`, []string{"pod: missing"}},
		{"pod null", "", `"pod": {`, `"pod": null, "x": {`, []string{"pod: missing"}},
		{"pod a list", "", `"pod": {`, `"pod": [], "x": {`, []string{"pod: []: must be an object"}},
		{"pod of another kind", "", `"PodManifest"`, `"ImageManifest"`, []string{"pod: ", "PodManifest"}},
		{"pod of an unknown kind", "", `"PodManifest"`, `"Pod"`, []string{`pod.acKind: "Pod"`}},
		{"pod without version", "", pod, ``, []string{"pod.acVersion: missing"}},
		{"pod of another major version", "", pod, `"acVersion": "1.0.0",`, []string{`pod.acVersion: "1.0.0"`}},
		{"apps absent", "", `"apps"`, `"x"`, []string{"pod.apps: missing"}},
		{"apps an object", "", `"apps": [{`, `"apps": {"a": 1}, "x": [{`, []string{`pod.apps: {"a": 1}: must be a list`}},
		{"apps given twice", "", `"apps": [{`, `"Apps": [], "apps": [{`, []string{"pod.apps", "twice"}},
		{"app a string", "", `"apps": [{`, `"apps": ["x", {`, []string{`pod.apps[0]: "x": must be an object`}},
		{"app null", "", `"apps": [{`, `"apps": [null, {`, []string{"pod.apps[0].name: missing"}},
		{"app without name", "", podApp, ``, []string{"pod.apps[0].name: missing"}},
		{"app of a bad name", "C-TYP-01", podApp, `"name": "Nats!",`, []string{`pod.apps[0].name: "Nats!"`}},
		{"app named ..", "", podApp, `"name": "..",`, []string{`pod.apps[0].name: ".."`}},
		{"app of a 255 character name", "", podApp, `"name": "` + strings.Repeat("n", 255) + `",`, []string{"pod.apps[0].name", "longer than 200"}},
		{"two apps of one name", "", `"apps": [{`, `"apps": [{"name": "nats", "image": {"id": "` + natsID + `"}}, {`, []string{"pod.apps", `"nats"`}},
		{"second app's image a number", "", `}]
	},
	"images"`, `}, {"name": "b", "image": {"id": 7}}]}, "images"`, []string{"pod.apps[1].image.id: 7: must be a string"}},
		{"image id absent", "", `"image": {`, `"image": {}, "x": {`, []string{"pod.apps[0].image.id: missing"}},
		{"image id short", "", natsID, natsID[:20], []string{`pod.apps[0].image.id: "` + natsID[:20] + `"`, "128"}},
		{"image id in upper case", "", natsID, strings.ToUpper(natsID[7:]), []string{"pod.apps[0].image.id"}},
		{"image id of another hash", "C-TYP-01", natsID, "sha256-00", []string{`pod.apps[0].image.id: "sha256-00"`}},
		{"image id not in images", "", natsID, otherID, []string{`pod.apps[0].image.id: "` + otherID + `": not in images`}},
		{"read-only a string", "", podApp, podApp + `"readOnlyRootFS": "yes",`, []string{`pod.apps[0].readOnlyRootFS: "yes": must be true or false`}},
		{"mount's volume a number", "", podApp, podApp + `"mounts": [{"volume": 1, "path": "/"}],`, []string{"pod.apps[0].mounts[0].volume: 1: must be a string"}},
		{"read-only given twice", "", podApp, podApp + `"readOnlyRootFS": true, "readOnlyRootfs": false,`, []string{"pod.apps[0].readOnlyRootFS", "twice"}},
		{"read-only given twice by one key", "", podApp, podApp + `"readOnlyRootFS": true, "readOnlyRootFS": false,`, []string{"pod.apps[0].readOnlyRootFS", "twice"}},
		{"volume's read-only given twice", "", pod, pod + `"volumes": [{"name": "v", "kind": "empty", "readOnly": true, "readonly": false}],`, []string{"pod.volumes[0].readOnly", "twice"}},
		{"volume of an unknown kind", "", pod, pod + `"volumes": [{"name": "v", "kind": "cloud"}],`, []string{`pod.volumes[0]: {"name":"v","kind":"cloud"}`, "kind"}},
		{"two volumes of one name", "", pod, pod + `"volumes": [{"name": "v", "kind": "empty"}, {"name": "v", "kind": "empty"}],`, []string{"pod", `"v"`}},
		{"app in neither place", "", `"app": {`, `"x": {`, []string{"pod.apps[0].app: missing", natsID}},
		{"exec absent", "", `"exec"`, `"x"`, []string{"app.exec: missing"}},
		{"exec empty", "", `"exec": [`, `"exec": [], "x": [`, []string{"app.exec: missing or empty"}},
		{"exec of an empty name", "", `"/gnatsd"`, `""`, []string{`app.exec[0]: ""`}},
		{"exec with NUL", "", `"/gnatsd"`, `"/gnatsd\u0000"`, []string{`app.exec[0]`, "NUL"}},
		{"user absent", "C-USR-04", imageApp, ``, []string{natsID, ".app: ", "user is required"}},
		{"user a number", "", imageApp, `"user": 0,`, []string{natsID, ".app.user: 0: must be a string"}},
		{"negative group", "", imageApp, imageApp + `"supplementaryGIDs": [1, -2],`, []string{"app.supplementaryGIDs[1]: -2"}},
		{"groups given twice", "C-USR-05", imageApp, imageApp + `"supplementaryGIDs": [1], "supplementaryGids": [2],`, []string{natsID, `.app.supplementaryGIDs: given twice, as "supplementaryGIDs" and "supplementaryGids"`}},
		{"group too large", "", imageApp, imageApp + `"supplementaryGIDs": [4294967295],`, []string{"app.supplementaryGIDs[0]: 4294967295"}},
		{"relative directory", "C-CWD-03", imageApp, imageApp + `"workingDirectory": "a",`, []string{".app: ", "workingDirectory"}},
		{"bad variable", "C-ENV-07", imageApp, imageApp + `"environment": [{"name": "A=B", "value": ""}],`, []string{".app.environment", "A=B"}},
		{"unknown event", "C-EVT-03", imageApp, imageApp + `"eventHandlers": [{"name": "pre-stop", "exec": ["/x"]}],`, []string{natsID, "pre-stop"}},
		{"event twice", "C-EVT-03", imageApp, imageApp + `"eventHandlers": [{"name": "pre-start", "exec": ["/x"]}, {"name": "pre-start", "exec": ["/x"]}],`, []string{natsID, "pre-start"}},
		{"created is not a time", "C-ANN-01", `"2015-12-09T20:18:21Z"`, `"yesterday"`, []string{natsID, "yesterday"}},
		{"annotation twice", "C-ANN-01", `"name": "authors"`, `"name": "created"`, []string{natsID, "annotation"}},
		{"port too large", "", `"port": 4222`, `"port": 70000`, []string{".app.ports[0]", "70000"}},
		{"isolators an object", "", imageApp, imageApp + `"isolators": {},`, []string{".app.isolators: {}: must be a list"}},
		{"isolator without name", "", imageApp, imageApp + `"isolators": [{"value": 1}],`, []string{".app.isolators[0].name: missing"}},
		{"images absent", "", `"images"`, `"x"`, []string{"images: missing"}},
		{"images a list", "", `"images": {`, `"images": [], "x": {`, []string{"images: []: must be an object"}},
		{"image null", "", `"` + natsID + `": {`, `"` + natsID + `": null, "x": {`, []string{natsID, "null"}},
		{"image without version", "", image, ``, []string{natsID, "acVersion"}},
		{"image key short", "", `"images": {`, `"images": {"sha512-1": {"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "a"},`, []string{`images: "sha512-1"`}},
		{"freebsd", "C-LAB-02", "\"linux\"\n\t\t\t}, {\n\t\t\t\t\"name\": \"arch\"", `"freebsd"}, {"name": "machine"`, []string{natsID, `labels: os "freebsd"`}},
		{"plan9", "", `"linux"`, `"plan9"`, []string{natsID, `labels`, `plan9`}},
		{"s390x", "C-LAB-02", thisArch, `"s390x"`, []string{natsID, `labels: arch "s390x"`}},
		{"order absent", "", `"appImageOrder"`, `"x"`, []string{"appImageOrder: missing"}},
		{"order without the app", "", order, `"redis": ["` + natsID + `"]`, []string{"appImageOrder.nats: missing or empty"}},
		{"order empty", "", order, `"nats": []`, []string{"appImageOrder.nats: missing or empty"}},
		{"order null", "", order, `"nats": null`, []string{"appImageOrder.nats: missing or empty"}},
		{"order a string", "", order, `"nats": "x"`, []string{`appImageOrder.nats: "x": must be a list`}},
		{"order with a path", "", order, `"nats": ["../../etc"]`, []string{`appImageOrder.nats[0]: "../../etc"`}},
		{"order with an unknown layer", "", order, `"nats": ["` + natsID + `", "` + otherID + `"]`, []string{`appImageOrder.nats[1]: "` + otherID + `": not in images`}},
		{"stagerConfig a list", "", config, `"stagerConfig": [1]`, []string{"stagerConfig: [1]: must be an object"}},
		{"stagerConfig a string", "", config, `"stagerConfig": "x"`, []string{`stagerConfig: "x": must be an object`}},
		{"a huge value", "", version, `"kurmaVersion": {"x": "` + strings.Repeat("y", 1<<16) + `"},`, []string{"kurmaVersion: {", "must be a string"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			checkRefused(t, edited(t, test.old, test.new), test.want)
		})
	}
}

// Of variables with a wrong name, the error names that one and has no value: values may be secrets.
func TestWrongVariableIsNamedAlone(t *testing.T) {
	for list, want := range map[string]string{
		`[{"name": "GOOD", "value": "secret"}, {"name": "A=B", "value": "secret"}]`:    `"A=B"`,
		`[{"name": "TWICE", "value": "secret"}, {"name": "TWICE", "value": "secret"}]`: `"TWICE"`,
		`[{"name": "A", "value": "secret"}, {"value": "secret"}]`:                      "name must not be empty",
	} {
		section := `"app": {"exec": ["/x"], "user": "0", "group": "0", "environment": ` + list + `}`
		pod := `{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": [{"name": "a", "image": {"name": "a"}, ` + section + `}]}`
		_, err := DecodePod([]byte(pod))
		if err == nil || !strings.HasPrefix(err.Error(), "pod.apps[0].app.environment: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("pod with %s: %v", list, err)
		}
		_, err = DecodeImage([]byte(`{"acVersion": "0.8.11", "acKind": "ImageManifest", "name": "a", ` + section + `}`))
		if err == nil || !strings.HasPrefix(err.Error(), "image.app.environment: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("image with %s: %v", list, err)
		}
	}
}

func checkRefused(t *testing.T, text string, want []string) {
	t.Helper()
	_, err := Read(strings.NewReader(text))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 1000 {
		t.Errorf("not one readable line: %q", err)
	}
}

func TestReadRefusesWhatIsNotADocument(t *testing.T) {
	text := example(t)
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"not a JSON document"}},
		{"cut", text[:len(text)/2], []string{"not a JSON document", "line 40, column 23"}},
		{"cut at the end", strings.TrimRight(text, "}\n"), []string{"not a JSON document"}},
		{"garbage", "\x7fELF\x02\x01", []string{"not a JSON document"}},
		{"two documents", text + text, []string{"not a JSON document"}},
		{"null", "null", []string{"pod: missing"}},
		{"a list", "[]", []string{"the document: []: must be an object"}},
		{"deep", strings.Repeat("[", 100000), []string{"not a JSON document"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { checkRefused(t, test.text, test.want) })
	}
}

// endless returns as much white space as its reader asks for.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestReadIsBounded(t *testing.T) {
	var source endless
	_, err := Read(&source)
	if err == nil || !strings.Contains(err.Error(), "larger than 67108864 bytes") {
		t.Errorf("got error %v", err)
	}
	if source.read > maxSize+1 {
		t.Errorf("read %d bytes", source.read)
	}
}

func TestIsolatorsAreKeptAsWritten(t *testing.T) {
	text := edited(t, imageApp, imageApp+`"isolators": [
		{"name": "os/linux/cpu-shares", "value": 3},
		{"name": "os/linux/privileged", "value": true},
		{"name": "example.com/unknown", "value": {"a": [1, 2]}}],`)
	text = strings.Replace(text, pod, pod+`"isolators": [{"name": "os/linux/namespaces", "value": {"net": "host"}}],`, 1)
	m, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Isolator{
		{"os/linux/cpu-shares", json.RawMessage("3")},
		{"os/linux/privileged", json.RawMessage("true")},
		{"example.com/unknown", json.RawMessage(`{"a": [1, 2]}`)},
	}
	if diff := cmp.Diff(want, m.Apps()[0].Isolators); diff != "" {
		t.Error(diff)
	}
	want = []Isolator{{"os/linux/namespaces", json.RawMessage(`{"net": "host"}`)}}
	if diff := cmp.Diff(want, m.Pod.Isolators); diff != "" {
		t.Error(diff)
	}
}

// The pod's app section replaces the image's as a whole.
func TestAppOfThePodReplacesTheImages(t *testing.T) {
	clause.Covers(t, "C-EXE-04")
	text := edited(t, imageApp, imageApp+`"isolators": [{"name": "a", "value": 1}], "environment": [{"name": "A", "value": "1"}],`)
	text = strings.Replace(text, podApp, podApp+`"app": {"exec": ["/x"], "user": "1", "group": "2", "isolators": [{"name": "b", "value": 2}]},`, 1)
	m, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	app := m.Apps()[0]
	if app.App.Exec[0] != "/x" || len(app.App.Environment) != 0 || len(app.App.Ports) != 0 {
		t.Errorf("got %+v", app.App)
	}
	if diff := cmp.Diff([]Isolator{{"b", json.RawMessage("2")}}, app.Isolators); diff != "" {
		t.Error(diff)
	}
}

func TestLayersAreDistinct(t *testing.T) {
	got := distinct([]string{"a", "c", "d", "b", "d", "a"})
	if diff := cmp.Diff([]string{"a", "c", "d", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWriteKeepsWhatWasRead(t *testing.T) {
	text := edited(t, pod, pod+`"isolators": [{"name": "x/y", "value": 1}], "unknown": 5,`)
	m, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMachinesRunTheirArchitectures(t *testing.T) {
	clause.Covers(t, "C-LAB-01")
	tests := []struct{ goarch, label string }{
		{"amd64", "amd64"},
		{"amd64", "i386"},
		{"386", "i386"},
		{"arm64", "aarch64"},
		{"arm64", "armv7l"},
		{"arm64", "armv6l"},
		{"arm", "armv7l"},
		{"arm", "armv6l"},
		{"s390x", "s390x"},
		{"ppc64le", "ppc64le"},
		{"ppc64", "ppc64"},
	}
	for _, test := range tests {
		t.Run(test.goarch+" runs "+test.label, func(t *testing.T) {
			for _, a := range architectures(test.goarch) {
				if a == test.label {
					return
				}
			}
			t.Errorf("got %v", architectures(test.goarch))
		})
	}
}

// Every value of the specification is understood: of its machines amd64 runs two.
func TestEveryArchitectureOfAppcIsKnown(t *testing.T) {
	clause.Covers(t, "C-LAB-01", "C-LAB-02")
	for _, arch := range []string{"amd64", "i386", "aarch64", "aarch64_be", "armv6l", "armv7l", "armv7b", "ppc64", "ppc64le", "s390x"} {
		image, err := DecodeImage([]byte(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"x/y",
			"labels":[{"name":"os","value":"linux"},{"name":"arch","value":"` + arch + `"}]}`))
		if err != nil {
			t.Errorf("%s: %v", arch, err)
			continue
		}
		err = validatePlatform("image", image.Labels, "amd64")
		if runs := arch == "amd64" || arch == "i386"; (err == nil) != runs {
			t.Errorf("%s: %v", arch, err)
		} else if !runs && !strings.Contains(err.Error(), `"`+arch+`"`) {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

func TestWriteWantsDocuments(t *testing.T) {
	pod, err := DecodePod([]byte(`{"acKind": "PodManifest", "acVersion": "0.8.11"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]Manifest{
		"no pod":          {},
		"no pod's JSON":   {Pod: &Pod{}},
		"no image's JSON": {Pod: pod, Images: map[string]*Image{natsID: {}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := m.Write(new(bytes.Buffer)); err == nil {
				t.Error("written")
			}
		})
	}
}

// FuzzRead looks for input that makes Read panic, or complain on several
// lines, and for accepted manifests that cannot be used.
func FuzzRead(f *testing.F) {
	text := example(f)
	f.Add([]byte(text))
	f.Add([]byte(edited(f, podApp, podApp+`"app": {"exec": ["/x"], "user": "1", "group": "2", "isolators": [{"name": "b", "value": 2}]}, "mounts": [{"volume": "v", "path": "/a"}],`)))
	f.Add([]byte(edited(f, pod, pod+`"volumes": [{"name": "v", "kind": "empty"}], "isolators": [{"name": "x/y", "value": 1}],`)))
	f.Add([]byte(`{"kurmaVersion": "1", "pod": {"acKind": "PodManifest", "acVersion": "0.8.11", "apps": [{"name": "a", "image": {"id": "sha512-0"}, "app": {"exec": ["a"]}}]}, "images": {}, "appImageOrder": {"a": []}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(bytes.NewReader(data))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		for _, app := range m.Apps() {
			if len(app.App.Exec) == 0 || len(app.Layers) == 0 {
				t.Errorf("accepted an app that cannot run: %+v", app)
			}
		}
	})
}

// The manifest that docs/stager-contract.md shows is one.
func TestTheContractsManifestIsRead(t *testing.T) {
	text, err := os.ReadFile("../docs/stager-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	_, document, found := strings.Cut(string(text), "```json\n")
	document, _, ends := strings.Cut(document, "```\n")
	if !found || !ends {
		t.Fatal("the page shows no manifest")
	}
	document = strings.ReplaceAll(document, "sha512-ID", "sha512-"+strings.Repeat("0123456789abcdef", 8))
	m, err := Read(strings.NewReader(strings.ReplaceAll(document, `"amd64"`, thisArch)))
	if err != nil {
		t.Fatal(err)
	}
	if apps := m.Apps(); len(apps) != 1 || apps[0].Name != "server" || len(apps[0].Layers) != 1 {
		t.Errorf("apps %+v", apps)
	}
}
