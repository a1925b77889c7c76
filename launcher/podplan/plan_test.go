package podplan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	decision "kurma.io/stager/plan"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"
)

// imageID is an image ID that ends in n.
func imageID(n int) string { return fmt.Sprintf("sha512-%0128x", n) }

// shelf is a few images in memory: an app that is built on a base.
type shelf []*images.Image

func newShelf() shelf {
	app := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/my_app.1","app":{"exec":["/x"],"user":"7","group":"8",
		"environment":[{"name":"A","value":"b"}],"ports":[{"name":"http","protocol":"tcp","port":80}],
		"mountPoints":[{"name":"x","path":"/x"}]}}`
	base := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/base"}`
	return shelf{
		{ID: imageID(1), Dir: "/images/1", Manifest: &images.Manifest{Raw: json.RawMessage(app), Name: "example.com/my_app.1", App: &images.App{Exec: []string{"/x"}}}},
		{ID: imageID(2), Dir: "/images/2", Manifest: &images.Manifest{Raw: json.RawMessage(base), Name: "example.com/base"}},
	}
}

func (s shelf) Find(ref string) (*images.Image, error) {
	for _, image := range s {
		if image.ID == ref || image.Manifest.Name == ref {
			return image, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", images.ErrNotFound, ref)
}

func (s shelf) FindLabelled(name string, _ types.Labels) (*images.Image, error) {
	return s.Find(name)
}

func (s shelf) Get(id string) (*images.Image, error) { return s.Find(id) }

func (s shelf) Layers(*images.Image) ([]*images.Image, error) { return s, nil }

func newPlanner() *Planner {
	return &Planner{
		Images: newShelf(),
		Stager: &images.Image{ID: imageID(9), Dir: "/images/9", Manifest: &images.Manifest{
			Name:        "example.com/stager",
			Annotations: map[string]string{names.LogDirAnnotation: "/logs", names.EventsAnnotation: "/logs/events"},
			App:         &images.App{Exec: []string{"/stager", "-x"}, Environment: []images.NameValue{{Name: "HOME", Value: "/"}, {Name: "B", Value: "c"}}},
		}},
		StagerConfig: json.RawMessage(`{"gracePeriod":"1s"}`),
		CheckSource:  func(string) error { return nil },
		Journal:      "/journal",
	}
}

func TestAnImageIsPlannedAsAPod(t *testing.T) {
	plan, warnings, err := newPlanner().FromImage("example.com/my_app.1", []string{"-v"}, Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	m, err := manifest.Read(strings.NewReader(string(plan.Manifest)))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "my-app-1" || string(m.StagerConfig) != `{"gracePeriod":"1s","podVolumes":["x"]}` {
		t.Errorf("name %q, configuration %s", m.Name, m.StagerConfig)
	}
	if diff := cmp.Diff([]string{"/x", "-v"}, []string(m.Apps()[0].App.Exec)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{imageID(1), imageID(2)}, m.AppImageOrder["my-app-1"]); diff != "" {
		t.Error(diff)
	}
	if len(plan.UUID) != 36 {
		t.Errorf("UUID %q", plan.UUID)
	}
	plan.UUID, plan.Manifest = "", nil
	want := pods.Plan{
		Name:        "my-app-1",
		StagerImage: imageID(9),
		StagerRoot:  "/images/9/rootfs",
		Exec:        []string{"/stager", "-x"},
		Env:         []string{"HOME=/root", "B=c"},
		LogDir:      "/logs",
		EventsFile:  "/logs/events",
		Layers:      []pods.Layer{{ID: imageID(1), Dir: "/images/1/rootfs"}, {ID: imageID(2), Dir: "/images/2/rootfs"}},
		Volumes:     []pods.Volume{{Name: "x", Mode: 0o755}},
		Journal:     "/journal",
		Apps:        []pods.App{{Name: "my-app-1", User: "7", Group: "8"}},
		StopTimeout: stopTimeout,
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Error(diff)
	}
}

// A mount covers the mount points of an image that are inside it and around it, unless a volume of the options fills
// one: the stager refuses a mount inside another. A warning says what the app keeps in its root instead.
func TestAMountCoversTheMountPointsInIt(t *testing.T) {
	const mountPoints = `[{"name":"x","path":"/var/lib/x/","odd":1},{"name":"y","path":"/var/liby","odd":2},{"name":"z","path":"z"}]`
	for _, tt := range []struct {
		name, target string
		args         []string
		volumes      map[string]string
		want, words  string // the targets, or the stager's error
	}{
		{"beside them", "/srv", nil, nil, "/srv /var/lib/x /var/liby /z", ""},
		{"above a point", "/var/lib", nil, nil, "/var/lib /var/liby /z", ""},
		{"above a point, in other words", "/var/./lib/", []string{"-v"}, nil, "/var/lib /var/liby /z", ""},
		{"above all", "/var", nil, nil, "/var /z", ""},
		{"a point with a volume", "/var/lib", nil, map[string]string{"x": "/other"}, "", `target "/var/lib/x" of volume "x" lies inside the target "/var/lib"`},
		{"below a point", "/var/liby/z", nil, nil, "/var/lib/x /var/liby/z /z", ""},
		{"below a point with a volume", "/var/liby/z", nil, map[string]string{"y": "/other"}, "", `target "/var/liby/z" of volume "launcher-path" lies inside the target "/var/liby"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, shelf := newPlanner(), newShelf()
			raw := &shelf[0].Manifest.Raw
			*raw = json.RawMessage(strings.Replace(string(*raw), `[{"name":"x","path":"/x"}]`, mountPoints, 1))
			p.Images = shelf
			planned, warnings, err := p.FromImage(shelf[0].ID, tt.args, Options{Mounts: []Mount{{Source: "/srv", Target: tt.target}}, Volumes: tt.volumes})
			if err != nil {
				t.Fatal(err)
			}
			told := strings.Contains(strings.Join(warnings, ""), `the image's volume at "/var/liby" is not made, because "/var/liby/z" is inside`)
			if told != (tt.name == "below a point") {
				t.Errorf("warnings %q", warnings)
			}
			m, err := manifest.Read(bytes.NewReader(planned.Manifest))
			if err != nil {
				t.Fatal(err)
			}
			decided, err := decision.Decide(m, spec.Support{}, []string{"overlay"}, nil)
			if tt.words != "" {
				if err == nil || !strings.Contains(err.Error(), tt.words) {
					t.Errorf("%v, want %q", err, tt.words)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var targets []string
			for _, mount := range decided.Apps[0].Spec.Mounts {
				targets = append(targets, mount.Target)
			}
			slices.Sort(targets)
			if got := strings.Join(targets, " "); got != tt.want || bytes.Contains(m.Pod.JSON, []byte("odd")) {
				t.Errorf("mounts at %s, want %s, in %s", got, tt.want, m.Pod.JSON)
			}
		})
	}
}

// An image's name may be longer than an app's or a pod's.
func TestALongImageNameIsCut(t *testing.T) {
	planner, shelf := newPlanner(), newShelf()
	shelf[0].Manifest.Name = "example.com/" + strings.Repeat("x", 300)
	planner.Images = shelf
	plan, _, err := planner.FromImage(shelf[0].ID, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if app := plan.Apps[0].Name; len(app) != manifest.MaxName || !IsName(plan.Name) || len(plan.Name) != MaxName {
		t.Errorf("pod %q, app %q", plan.Name, app)
	}
}

func TestAManifestIsPlannedWithItsOptions(t *testing.T) {
	document := `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"}}],
		"volumes":[{"name":"v","kind":"empty","mode":"1777","uid":5},{"name":"w","kind":"host","source":"/w","recursive":false}],
		"ports":[{"name":"http","hostPort":8080}]}`
	plan, warnings, err := newPlanner().FromManifest("/pods/one pod.json", []byte(document), Options{HostNetwork: true, Volumes: map[string]string{"x": "/x"}})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Name != "one-pod" || !plan.HostNetwork {
		t.Errorf("name %q, the host's network: %v", plan.Name, plan.HostNetwork)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], `pod "one-pod": port "http"`) {
		t.Errorf("warnings %q", warnings)
	}
	want := []pods.Volume{{Name: "v", Mode: 0o1777, UID: 5}, {Name: "w", Source: "/w", SingleMount: true}, {Name: "x", Source: "/x"}}
	if diff := cmp.Diff(want, plan.Volumes); diff != "" {
		t.Error(diff)
	}
}

// A volume of the options fills one of the pod, a mount point of an image or a mount of an app.
func TestThePlanChecksTheNamesOfVolumes(t *testing.T) {
	document := `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"},
		"mounts":[{"volume":"m","path":"/m"}]}],"volumes":[{"name":"v","kind":"empty"}]}`
	for name, want := range map[string]string{"v": "", "x": "", "m": "", "y": `pod "p": volume "y": no app has a mount point of that name; known mount points: m, v, x`} {
		_, _, err := newPlanner().FromManifest("p.json", []byte(document), Options{Volumes: map[string]string{"m": "/m", name: "/y"}})
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	const without = `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"},
		"app":{"exec":["/x"],"user":"0","group":"0"}}]}`
	_, _, err := newPlanner().FromManifest("p.json", []byte(without), Options{Volumes: map[string]string{"y": "/y"}})
	if want := `pod "p": volume "y": no app has a mount point`; fmt.Sprint(err) != want {
		t.Errorf("a pod without mount points: %v, want %q", err, want)
	}
}

func TestWrongPodsAreRefused(t *testing.T) {
	const pod = `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"%s"}}]%s}`
	tests := []struct {
		name   string
		change func(*Planner)
		pod    string
		words  string
	}{
		{"no image", nil, fmt.Sprintf(pod, "example.com/none", ""), `pod manifest p.json: app "a": no such image`},
		{"an image without ID and name", nil, strings.Replace(fmt.Sprintf(pod, "x", ""), `{"name":"x"}`, "{}", 1), `pod manifest p.json: app "a": image: neither ID nor name`},
		{"bytes that are not UTF-8", nil, "\xff", "read pod manifest p.json: not UTF-8"},
		{"a source that cannot be mounted", func(p *Planner) {
			p.CheckSource = func(path string) error { return errors.New(path + " is forbidden") }
		}, fmt.Sprintf(pod, "example.com/my_app.1", `,"volumes":[{"name":"v","kind":"host","source":"/v"}]`), `pod "p": volume "v": /v is forbidden`},
		{
			"a stager without a path", func(p *Planner) { p.Stager.Manifest.App.Exec = []string{"stager"} },
			fmt.Sprintf(pod, "example.com/my_app.1", ""), `stager image "example.com/stager": exec "stager" is not an absolute path`,
		},
	}
	for _, path := range []string{"logs", "/", "/a/../..", "/a/"} {
		tests = append(tests, tests[len(tests)-1])
		last := &tests[len(tests)-1]
		last.name, last.words = "log folder "+path, fmt.Sprintf("annotation %s: %q is not an absolute path below /", names.LogDirAnnotation, path)
		last.change = func(p *Planner) { p.Stager.Manifest.Annotations[names.LogDirAnnotation] = path }
	}
	tests = append(tests, tests[len(tests)-1])
	last := &tests[len(tests)-1]
	last.name, last.words = "file of events", fmt.Sprintf("annotation %s: %q is not an absolute path below /", names.EventsAnnotation, "events")
	last.change = func(p *Planner) { p.Stager.Manifest.Annotations[names.EventsAnnotation] = "events" }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlanner()
			if tt.change != nil {
				tt.change(p)
			}
			_, _, err := p.FromManifest("p.json", []byte(tt.pod), Options{})
			if err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

// A pod that the stager refuses for its number of mounts is refused before a volume of it is looked at.
func TestPodsOfManyMountsAreRefused(t *testing.T) {
	list := func(format string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i, i))
		}
		return strings.Join(all, ",")
	}
	p := newPlanner()
	p.CheckSource = func(path string) error {
		t.Errorf("%s is looked at", path)
		return nil
	}
	app := fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/many","app":{"exec":["/x"],"user":"7",
		"group":"8","mountPoints":[%s]}}`, list(`{"name":"x-%d","path":"/x/%d"}`, 20_000))
	p.Images = shelf{{ID: imageID(1), Dir: "/images/1", Manifest: &images.Manifest{
		Raw: json.RawMessage(app), Name: "example.com/many", App: &images.App{Exec: []string{"/x"}},
	}}}
	_, _, err := p.FromImage("example.com/many", nil, Options{})
	if want := `pod "many": app "many": 20000 mounts and mount points are more than 4096`; fmt.Sprint(err) != want {
		t.Errorf("%v, want %q", err, want)
	}
	p.Images = newShelf()
	pod := fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"}}],
		"volumes":[%s]}`, list(`{"name":"v-%d","kind":"host","source":"/v/%d"}`, 20_000))
	_, _, err = p.FromManifest("p.json", []byte(pod), Options{})
	if want := `pod "p": 20000 volumes are more than 4096`; fmt.Sprint(err) != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// A wrong port is refused whether or not a network takes the pod's ports.
func TestWrongPortsAreRefused(t *testing.T) {
	for ports, words := range map[string]string{
		`{"name":"x","hostPort":80}`:          `pod "p": port "x": no app has a port of that name`,
		`{"name":"x","hostPort":99999999}`:    `pod "p": port "x": no app has a port of that name`,
		`{"name":"http","hostPort":99999999}`: `pod "p": port "http": 1 ports from host port 99999999 to port 80 are not within 1 to 65535`,
		`{"name":"http","hostPort":0}`:        `pod "p": port "http": 1 ports from host port 0 to port 80 are not within 1 to 65535`,
		`{"name":"x","hostPort":65535,"podPort":{"name":"x","protocol":"tcp","port":80,"count":2}}`:                 "2 ports from host port 65535",
		`{"name":"x","hostPort":18446744073709551615,"podPort":{"name":"x","protocol":"tcp","port":80,"count":2}}`:  "2 ports from host port 18446744073709551615",
		`{"name":"x","hostPort":20,"podPort":{"name":"x","protocol":"tcp","port":20,"count":18446744073709551610}}`: "18446744073709551610 ports from",
		`{"name":"x","hostPort":80,"hostIP":"::1","podPort":{"name":"x","protocol":"tcp","port":80}}`:               `port "x": hostIP ::1: Linux routes no packets from ::1 to a pod`,
		`{"name":"x","hostPort":80,"podPort":{"name":"x","protocol":"tcpp","port":80}}`:                             `port "x": protocol "tcpp": want tcp, udp or sctp`,
	} {
		for name, o := range map[string]Options{"own": {}, "none": {NoNetwork: true}, "host": {HostNetwork: true}} {
			pod := `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"name":"example.com/my_app.1"}}],"ports":[` + ports + `]}`
			_, _, err := newPlanner().FromManifest("p.json", []byte(pod), o)
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("network %s, port %s: %v, want %q", name, ports, err, words)
			}
		}
	}
}

// A working directory that the options name is made if the image lacks it, unless the configuration decides that.
func TestTheWorkingDirectoryOfTheOptionsIsMade(t *testing.T) {
	for _, tt := range []struct{ config, dir, want string }{
		{`{"gracePeriod":"1s"}`, "/new", `{"gracePeriod":"1s","makeWorkingDirectory":true}`},
		{`{"makeWorkingDirectory":false}`, "/new", `{"makeWorkingDirectory":false}`},
		{"", "/new", `{"makeWorkingDirectory":true}`},
		{`{"gracePeriod":"1s"}`, "", `{"gracePeriod":"1s"}`},
	} {
		got, err := stagerConfig(json.RawMessage(tt.config), Options{App: AppOptions{WorkingDirectory: tt.dir}})
		if err != nil || string(got) != tt.want {
			t.Errorf("%s with %q: %s, %v; want %s", tt.config, tt.dir, got, err, tt.want)
		}
	}
}

func TestArgumentsReplaceTheCommandOfDocker(t *testing.T) {
	tests := []struct {
		name, entrypoint, command string
		want                      []string
	}{
		{"entry point and command", `["/x"]`, `["a"]`, []string{"/x", "-v"}},
		{"command only", `[]`, `["/x","a"]`, []string{"-v"}},
		{"not from Docker", "", "", []string{"/x", "a", "-v"}},
		{"not what exec is", `["/y"]`, `["a"]`, []string{"/x", "a", "-v"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &images.Manifest{App: &images.App{Exec: []string{"/x", "a"}}, Annotations: map[string]string{
				names.EntrypointAnnotation: tt.entrypoint, names.CommandAnnotation: tt.command,
			}}
			if diff := cmp.Diff(tt.want, append(fixedExec(m, []string{"-v"}), "-v")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"/x", "a"}, fixedExec(m, nil)); diff != "" {
				t.Errorf("without arguments: %s", diff)
			}
		})
	}
}
