package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

func TestTheStagersVariablesOverrideTheApps(t *testing.T) {
	type variables = types.Environment
	literal := "$HOME ${A} `id` \"q\" 'q' \\n a=b\n"
	tests := []struct {
		name, clauses string
		own           variables
		metadata      string
		terminal      bool
		want          []string
	}{
		{"what every app has", "C-ENV-01 C-ENV-02 C-ENV-03 C-ENV-04", nil, "http://x", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=" + defaultPath, "AC_METADATA_URL=http://x"}},
		{"own metadata service", "C-ENV-03", variables{{Name: "AC_METADATA_URL", Value: "z"}}, "http://x", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=" + defaultPath, "AC_METADATA_URL=http://x"}},
		{"without metadata service", "", nil, "", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=" + defaultPath}},
		{"own PATH", "C-ENV-08", variables{{Name: "PATH", Value: "/bin"}}, "", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=/bin"}},
		{"executor's names", "C-ENV-08", variables{{Name: "AC_APP_NAME", Value: "z"}, {Name: "container", Value: "z"}}, "", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=" + defaultPath}},
		{"literal", "C-ENV-06", variables{{Name: "A", Value: literal}}, "", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "A=" + literal, "PATH=" + defaultPath}},
		{"terminal", "", nil, "", true, []string{"AC_APP_NAME=a", "container=" + names.Executor, "PATH=" + defaultPath, "TERM=xterm"}},
		{"own TERM", "", variables{{Name: "TERM", Value: "vt100"}}, "", true, []string{"AC_APP_NAME=a", "container=" + names.Executor, "TERM=vt100", "PATH=" + defaultPath}},
		{"no duplicates", "", variables{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}, "", false, []string{"AC_APP_NAME=a", "container=" + names.Executor, "A=1", "PATH=" + defaultPath}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			app := withMounts(nil, nil)
			app.App.Environment = test.own
			env, _, err := environmentOf(app, defaultConfig(), "h", test.terminal)
			if diff := cmp.Diff(test.want, WithMetadata(env, test.metadata)); diff != "" || err != nil {
				t.Error(err)
				t.Error(diff)
			}
		})
	}
}

func TestVariablesOfAnnotationAreAdded(t *testing.T) {
	app := withMounts(nil, nil)
	app.App.Environment = types.Environment{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	config := defaultConfig()
	config.ExecutorVariables = false
	for _, test := range []struct {
		text, refused string
		want          []string
	}{
		{`["1 x=y", "A=z=\"", "container=k8s"]`, "", []string{"1 x=y", `A=z="`, "container=k8s", "B=2", "PATH=" + defaultPath, "TERM=xterm"}},
		{`["TERM=x"]`, "", []string{"TERM=x", "A=1", "B=2", "PATH=" + defaultPath}},
		{`[]`, "", []string{"A=1", "B=2", "PATH=" + defaultPath, "TERM=xterm"}},
		{`["A=1", "secret"]`, "[1]: must be NAME=value", nil},
		{`["=secret"]`, "[0]: must be NAME=value", nil},
		{`["A=sec\u0000ret"]`, "[0]: has a NUL character", nil},
		{`{"A": "secret"}`, "must be a list", nil},
	} {
		app.Runtime.Annotations = types.Annotations{{Name: names.EnvironmentAnnotation, Value: test.text}}
		env, variables, err := environmentOf(app, config, "h", true)
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", test.text, err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, env); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		pod := Pod{Config: config, Apps: []App{{Name: "a", variables: variables}}}
		if diff := cmp.Diff(slices.DeleteFunc(test.want, func(v string) bool { return v == "TERM=xterm" }), pod.CommandEnv("a")); diff != "" {
			t.Errorf("commands: %s", diff)
		}
	}
	ofImage := types.Annotations{{Name: names.EnvironmentAnnotation, Value: `["f%%=()"]`}}
	app.Image = &manifest.Image{ImageManifest: &schema.ImageManifest{Annotations: ofImage}}
	for text, want := range map[string][]string{
		"": {"f%%=()", "A=1", "B=2", "PATH=" + defaultPath}, `["x y=1"]`: {"x y=1", "A=1", "B=2", "PATH=" + defaultPath},
	} {
		app.Runtime.Annotations = nil
		if text != "" {
			app.Runtime.Annotations = types.Annotations{{Name: names.EnvironmentAnnotation, Value: text}}
		}
		env, _, err := environmentOf(app, config, "", false)
		if diff := cmp.Diff(want, env); diff != "" || err != nil {
			t.Errorf("the image's variables and %q: %v\n%s", text, err, diff)
		}
	}
}

func TestAnAppBecomesASpec(t *testing.T) {
	app := manifest.App{
		Name:  "db",
		Image: &manifest.Image{ImageManifest: new(schema.ImageManifest)},
		Runtime: schema.RuntimeApp{
			ReadOnlyRootFS: true,
			Mounts:         []schema.Mount{mountOf("v", "/d")},
			Annotations:    types.Annotations{{Name: names.StdinAnnotation, Value: "stream"}, {Name: names.TTYAnnotation, Value: "true"}, {Name: names.HideProcessesAnnotation, Value: "true"}},
		},
		App: &types.App{
			Exec: types.Exec{"db", "", "$PATH", "a "}, User: "postgres", Group: "/f", SupplementaryGIDs: []int{20, 21},
			WorkingDirectory: "/d",
			EventHandlers:    []types.EventHandler{{Name: "pre-start", Exec: types.Exec{"/pre", "x"}}, {Name: "post-stop"}},
			MountPoints:      []types.MountPoint{point("other", "/o")},
		},
		Isolators: listed("os/linux/no-new-privileges", "true", "os/linux/oom-score-adj", "7", "example.com/x", "1", removeSet, `{"set": ["CAP_CHOWN"]}`),
		Layers:    []string{"sha512-1"},
	}
	got, err := (Rows{}).planApp(app, defaultConfig(), able, podIsolators{SELinuxLabel: "l"}, []types.Volume{host("v")})
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Spec{
		Name: "db", ReadOnlyRoot: true,
		Process: spec.Process{
			Args: []string{"db", "", "$PATH", "a "}, Dir: "/d", User: "postgres", Group: "/f", SupplementaryGID: []int{20, 21},
			Env:          []string{"AC_APP_NAME=db", "container=" + names.Executor, "PATH=" + defaultPath, "TERM=xterm"},
			Capabilities: without(spec.DefaultCapabilities(), "CAP_CHOWN"), NoNewPrivileges: true,
		},
		Mounts:        []spec.Mount{bound("/volumes/v", "/d"), bound(names.EmptyVolumesDir+"/app/db/other-0", "/o")},
		HideProcesses: true, OOMScoreAdj: 7, SELinuxLabel: "l",
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/pre", "x"}, got.PreStart); diff != "" || got.PostStop != nil {
		t.Errorf("got pre-start %q, post-stop %q", got.PreStart, got.PostStop)
	}
	if !got.Stdin || got.Terminal == nil || len(got.Notes) != 1 || len(got.Volumes) != 1 || len(got.Sources) != 1 {
		t.Errorf("got %+v", got)
	}
	checkFates(t, []Fate{Enforced, Enforced, Ignored, Enforced}, got.Fates)
}

// A terminal has a size from the start: programs fail with one of no columns.
func TestATerminalHasASize(t *testing.T) {
	annotated := func(tty, size string) types.Annotations {
		all := types.Annotations{{Name: names.TTYAnnotation, Value: tty}}
		if size != "" {
			all = append(all, types.Annotation{Name: names.TTYSizeAnnotation, Value: size})
		}
		return all
	}
	for _, tt := range []struct {
		tty, size string
		want      *Size
	}{
		{"", "", nil},
		{"false", "101x33", nil},
		{"true", "", &Size{80, 24}},
		{"true", "101x33", &Size{101, 33}},
		{"true", "65535x1", &Size{65535, 1}},
	} {
		got, err := terminalOf(annotated(tt.tty, tt.size))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q, %q: %v\n%s", tt.tty, tt.size, err, diff)
		}
	}
	for _, size := range []string{"yes", "80", "80x", "0x24", "80x0", "80x24x", "-1x24", "65536x24", "080x24", " 80x24"} {
		got, err := terminalOf(annotated("true", size))
		if err == nil || !strings.Contains(err.Error(), `must be a size such as "80x24"`) {
			t.Errorf("%q: %v, %v", size, got, err)
		}
	}
	if got, err := terminalOf(annotated("101x33", "")); err == nil {
		t.Errorf("a size as the other annotation: %v", got)
	}
}

func TestAnErrorNamesTheApp(t *testing.T) {
	annotated := func(name, value string) func(*manifest.Manifest) {
		return func(m *manifest.Manifest) {
			m.Pod.Apps[0].Annotations = types.Annotations{{Name: types.ACIdentifier(name), Value: value}}
		}
	}
	tests := []struct {
		name   string
		change func(*manifest.Manifest)
		want   []string
	}{
		{"isolator", func(m *manifest.Manifest) {
			for _, image := range m.Images {
				image.Isolators = listed("os/linux/cpu-shares", "1")
			}
		}, []string{"os/linux/cpu-shares: 1: must be"}},
		{"mount", func(m *manifest.Manifest) { m.Pod.Apps[0].Mounts = []schema.Mount{mountOf("x", "/x")} }, []string{`"x"`}},
		{"port", func(m *manifest.Manifest) {
			for _, image := range m.Images {
				image.App.Ports = []types.Port{{Name: "p", Protocol: "sctp", SocketActivated: true}}
			}
		}, []string{`port "p"`}},
		{"stdin annotation", annotated(names.StdinAnnotation, "yes"), []string{names.StdinAnnotation, `"yes"`}},
		{"tty annotation", annotated(names.TTYAnnotation, "1"), []string{names.TTYAnnotation, `"1"`}},
		{"annotation to hide processes", annotated(names.HideProcessesAnnotation, "yes"), []string{names.HideProcessesAnnotation, `"yes"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := manifest.Read(strings.NewReader(example(t)))
			if err != nil {
				t.Fatal(err)
			}
			test.change(m)
			_, err = Decide(m, able, nil, nil)
			wantError(t, err, append(test.want, `app "nats": `)...)
		})
	}
}

// D-06 in tests/CLAUSES.md: a handler runs as root, within the app's capabilities.
func TestHandlersRunAsRoot(t *testing.T) {
	clause.Covers(t, "C-EVT-07")
	main := spec.Process{
		Args: []string{"main"}, Env: []string{"A=1"}, Dir: "/d", User: "1", Group: "2", SupplementaryGID: []int{3},
		Capabilities: []string{"CAP_KILL"}, NoNewPrivileges: true,
	}
	want := main
	want.Args, want.Root, want.User, want.Group, want.SupplementaryGID = []string{"h"}, true, "", "", nil
	if diff := cmp.Diff(want, Handler(main, []string{"h"})); diff != "" {
		t.Error(diff)
	}
}
