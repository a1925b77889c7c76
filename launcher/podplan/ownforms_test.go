package podplan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// referring is a pod of one app with this image.
func referring(image string) string {
	return `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":` + image + `}]}`
}

// The name of an image may be a reference, as run takes it: what was obtained for it, or what the store has.
func TestImagesAreNamedByReferences(t *testing.T) {
	p := newPlanner()
	p.Obtained = map[string]string{
		"docker://docker.io/library/web:1": imageID(1), "docker.io/library/web": imageID(1), "example.com/my_app.1": "example.com/my_app.1",
	}
	for _, image := range []string{
		`{"name":"docker://docker.io/library/web:1"}`, `{"NAME":"docker.io/library/web","id":""}`, `{"name":"example.com/my_app.1","labels":[]}`,
		fmt.Sprintf(`{"name":%q}`, imageID(1)), `{"name":"example.com/my_app.1"}`,
	} {
		plan, warnings, err := p.FromManifest("p.json", []byte(referring(image)), Options{})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %q", image, err, warnings)
			continue
		}
		if text := string(plan.Manifest); !strings.Contains(text, `"id":"`+imageID(1)+`"`) {
			t.Errorf("%s: %s", image, text)
		}
	}
	for image, want := range map[string]string{
		`{"name":"example.com/none:1"}`: `pod manifest p.json: app "a": no such image: "example.com/none:1"`,
		`{"name":"example.com/none"}`:   `pod manifest p.json: app "a": no such image: "example.com/none"`,
		`{"name":"example.com/my_app.1:1","labels":[{"name":"version","value":"1"}]}`: `example.com/my_app.1:1`,
		`{"name":7}`: "pod.apps[0].image.name",
		`{}`:         `app "a": image: neither ID nor name`,
	} {
		if _, _, err := p.FromManifest("p.json", []byte(referring(image)), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", image, err, want)
		}
	}
}

// References are the images that are to be obtained: neither an ID nor labels say more of them.
func TestReferencesOfAManifest(t *testing.T) {
	for text, want := range map[string][]string{
		`{"apps":[{"image":{"name":"a:1"}},{"IMAGE":{"Name":"b"}},{"image":{"name":"c","id":"sha512-x"}},{"image":{"name":"d","labels":[{}]}},{"image":{"name":"a:1"}}]}`: {"a:1", "b", "a:1"},
		`{"apps":[7,{"image":[]},{"image":{"name":7}}]}`: nil,
		`[]`:  nil,
		`{"a`: nil,
	} {
		if diff := cmp.Diff(want, References([]byte(text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
