package boot

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// check checks that Run has left nothing, and the plan as it was.
func (o outcome) check(t *testing.T) {
	t.Helper()
	if len(o.Left) > 0 {
		t.Errorf("left behind: %q\n%s", o.Left, o.Log)
	}
	if o.Changed != "" {
		t.Errorf("the plan (-) has changed (+):\n%s", o.Changed)
	}
}

func TestAPodRunsFromItsManifestToItsEnd(t *testing.T) {
	o := try(t, trial{})
	o.check(t)
	if o.Code != 3 || o.Err != "" {
		t.Errorf("code %d, error %q\n%s", o.Code, o.Err, o.Log)
	}
	if !strings.Contains(o.Output, "main has handler, 1 socket, http://127.0.0.1:") {
		t.Errorf("output %q\n%s", o.Output, o.Log)
	}
}

// Whether the app's end or the end of the wait for its report is noticed first is chance.
func TestAnAppThatIsNeverReadyLeavesNothing(t *testing.T) {
	o := try(t, trial{Notifies: true})
	o.check(t)
	if early := `start app "a": ended before it was ready`; o.Code == 0 || o.Err != "" && o.Err != early {
		t.Errorf("code %d, error %q\n%s", o.Code, o.Err, o.Log)
	}
}

func TestStepsMayBeLeftOut(t *testing.T) {
	optional := []string{
		"claim root", "reserve threads", "start metadata service", "open journal", "limit network", "open sockets", "guard own life",
	}
	without := map[string][]string{"all": optional}
	for _, name := range optional {
		without[name] = []string{name}
	}
	for name, steps := range without {
		t.Run(name, func(t *testing.T) {
			o := try(t, trial{Without: steps})
			o.check(t)
			if o.Code != 3 || o.Err != "" || !strings.Contains(o.Output, "main has handler") {
				t.Errorf("code %d, error %q, output %q\n%s", o.Code, o.Err, o.Output, o.Log)
			}
		})
	}
}

func TestAFailureAfterAnyStepLeavesNothing(t *testing.T) {
	for _, step := range Steps() {
		t.Run(step.Name, func(t *testing.T) {
			o := try(t, trial{After: step.Name})
			o.check(t)
			if o.Code != 1 || o.Err != "step refused" {
				t.Errorf("code %d, error %q\n%s", o.Code, o.Err, o.Log)
			}
		})
	}
}

// obstacle makes a step fail.
type obstacle struct {
	put func(*Parts) error
	err string // of Run
}

func obstacles() map[string]obstacle {
	runtime := func(change func(*broken)) func(*Parts) error {
		return func(p *Parts) error {
			b := &broken{Runtime: p.Runtime}
			change(b)
			p.Runtime = b
			return nil
		}
	}
	file := func(path string) func(*Parts) error {
		return func(*Parts) error {
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600))
		}
	}
	refused := errors.New("runtime refused")
	return map[string]obstacle{
		"make own view":                 {file(names.RunDir), "make folder"},
		"prepare runtime":               {runtime(func(b *broken) { b.prepare = refused }), "runtime refused"},
		"make volumes":                  {func(*Parts) error { return os.Remove(names.VolumesDir + "/host") }, `find source of volume "host"`},
		"open sockets":                  {func(*Parts) error { _, err := net.Listen("tcp", ":8080"); return err }, `app "a"`},
		"assemble apps":                 {file(names.LogDir + "/a"), "open log"},
		"listen":                        {func(*Parts) error { return os.MkdirAll(names.ControlSocket+"/full", 0o755) }, "remove old socket"},
		"mount roots":                   {func(p *Parts) error { p.Drivers = []unionfs.Driver{refusing{}}; return nil }, `mount root of app "a": driver refused`},
		"mount roots: the pod's cgroup": {runtime(func(b *broken) { b.makePod = refused }), "runtime refused"},
		"run apps":                      {runtime(func(b *broken) { b.container = refused }), `start app "a": pre-start handler: runtime refused`},
		"undo":                          {runtime(func(b *broken) { b.end = refused }), "runtime refused"},
	}
}

// broken is a runtime with an error for some calls.
type broken struct {
	spec.Runtime
	prepare, makePod, container, end error
}

func (b *broken) Prepare(dir string, limits spec.Resources) error {
	return errors.Join(b.Runtime.Prepare(dir, limits), b.prepare)
}
func (b *broken) MakePod() error { return errors.Join(b.Runtime.MakePod(), b.makePod) }
func (b *broken) Close() error   { return errors.Join(b.Runtime.Close(), b.end) }
func (b *broken) Container(s spec.Spec) (spec.Container, error) {
	if b.container != nil {
		return nil, b.container
	}
	return b.Runtime.Container(s)
}

// refusing is a driver that mounts nothing.
type refusing struct{ plain }

func (refusing) Mount(context.Context, unionfs.Root) error { return errors.New("driver refused") }

func TestAStepThatFailsLeavesNothing(t *testing.T) {
	for name, obstacle := range obstacles() {
		t.Run(name, func(t *testing.T) {
			o := try(t, trial{Break: name})
			o.check(t)
			if o.Code == 0 || (o.Err == "") != (obstacle.err == "") || !strings.Contains(o.Err, obstacle.err) {
				t.Errorf("code %d, error %q, want %q\n%s", o.Code, o.Err, obstacle.err, o.Log)
			}
		})
	}
}

// Without a manifest there is no pod, and nothing has been touched.
func TestAPodWithoutAManifestTouchesNothing(t *testing.T) {
	if _, _, err := Decide(nil, nil, plan.Rows{}); err == nil || !strings.Contains(err.Error(), "read manifest: open "+names.Manifest) {
		t.Errorf("error %v", err)
	}
}
