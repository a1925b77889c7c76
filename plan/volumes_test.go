package plan

import (
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

func to[T any](v T) *T { return &v }

func host(name string) types.Volume {
	return types.Volume{Name: types.ACName(name), Kind: "host", Source: "/on/the/host"}
}

func empty(name string) types.Volume {
	return types.Volume{Name: types.ACName(name), Kind: "empty", Mode: to("0755"), UID: to(0), GID: to(0)}
}

func mountOf(volume, path string) schema.Mount {
	return schema.Mount{Volume: types.ACName(volume), Path: path}
}

func point(name, path string) types.MountPoint {
	return types.MountPoint{Name: types.ACName(name), Path: path}
}

// withMounts is an app named "a".
func withMounts(mounts []schema.Mount, points []types.MountPoint) manifest.App {
	return manifest.App{
		Name:    "a",
		Runtime: schema.RuntimeApp{Mounts: mounts},
		Image:   &manifest.Image{ImageManifest: new(schema.ImageManifest)},
		App:     &types.App{Exec: types.Exec{"/a"}, User: "0", Group: "0", MountPoints: points},
	}
}

func bound(source, target string) spec.Mount {
	return spec.Mount{Source: source, Target: target, Recursive: true}
}

func readOnly(m spec.Mount) spec.Mount {
	m.ReadOnly = true
	return m
}

func TestMountsFollowPointsAndVolumes(t *testing.T) {
	v, e := host("v"), empty("e")
	ro, rw, flat := v, v, v
	ro.ReadOnly, rw.ReadOnly, flat.Recursive = to(true), to(false), to(false)
	own := host("own")
	readOnlyPoint := types.MountPoint{Name: "p", Path: "/d/", ReadOnly: true}
	pod := names.EmptyVolumesDir + "/pod/"
	apps := names.EmptyVolumesDir + "/app/a/"
	tests := []struct {
		name, clauses string
		mounts        []schema.Mount
		points        []types.MountPoint
		volumes       []types.Volume
		want          []spec.Mount
		empty         []EmptyVolume
		notes         int
	}{
		{"nothing", "", nil, nil, []types.Volume{v, e}, nil, nil, 0},
		{"host", "C-VOL-01", []schema.Mount{mountOf("v", "/d")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d")}, nil, 0},
		{"twice", "C-VOL-01", []schema.Mount{mountOf("v", "/d"), mountOf("v", "/e")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d"), bound("/volumes/v", "/e")}, nil, 0},
		{"appVolume wins", "C-VOL-10", []schema.Mount{{Volume: "v", Path: "/d", AppVolume: &own}}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/own", "/d")}, nil, 0},
		{
			"empty appVolume is the app's own", "C-VOL-10",
			[]schema.Mount{{Volume: "e", Path: "/d", AppVolume: &e}, mountOf("e", "/e")},
			nil,
			[]types.Volume{e},
			[]spec.Mount{bound(apps+"e-0", "/d"), bound(pod+"e", "/e")},
			[]EmptyVolume{{apps + "e-0", 0o755, 0, 0, "", true}, {pod + "e", 0o755, 0, 0, "", true}},
			0,
		},
		{"read-only absent", "C-VOL-11", []schema.Mount{mountOf("v", "/d")}, []types.MountPoint{point("p", "/d")}, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d")}, nil, 0},
		{"read-only volume", "C-VOL-16", []schema.Mount{mountOf("v", "/d")}, nil, []types.Volume{ro}, []spec.Mount{readOnly(bound("/volumes/v", "/d"))}, nil, 0},
		{"read-only mount point", "C-VOL-15", []schema.Mount{mountOf("v", "/d")}, []types.MountPoint{readOnlyPoint}, []types.Volume{v}, []spec.Mount{readOnly(bound("/volumes/v", "/d"))}, nil, 0},
		{"D-04 read-only mount point, writable volume", "", []schema.Mount{mountOf("v", "/d")}, []types.MountPoint{readOnlyPoint}, []types.Volume{rw}, []spec.Mount{readOnly(bound("/volumes/v", "/d"))}, nil, 0},
		{"D-04 read-only volume, writable mount point", "", []schema.Mount{mountOf("v", "/d")}, []types.MountPoint{point("p", "/d")}, []types.Volume{ro}, []spec.Mount{readOnly(bound("/volumes/v", "/d"))}, nil, 0},
		{"not recursive", "C-VOL-13", []schema.Mount{mountOf("v", "/d")}, nil, []types.Volume{flat}, []spec.Mount{{Source: "/volumes/v", Target: "/d"}}, nil, 0},
		{"empty", "C-VOL-12", []schema.Mount{mountOf("e", "/d")}, nil, []types.Volume{e}, []spec.Mount{bound(pod+"e", "/d")}, []EmptyVolume{{pod + "e", 0o755, 0, 0, "", true}}, 0},
		{
			"mode and owner", "C-VOL-12",
			[]schema.Mount{mountOf("e", "/d")},
			nil,
			[]types.Volume{{Name: "e", Kind: "empty", Mode: to("1777"), UID: to(5), GID: to(4294967294)}},
			[]spec.Mount{bound(pod+"e", "/d")},
			[]EmptyVolume{{pod + "e", 0o1777, 5, 4294967294, "", false}},
			0,
		},
		{
			"mode alone", "C-VOL-12",
			[]schema.Mount{mountOf("e", "/d")},
			nil,
			[]types.Volume{{Name: "e", Kind: "empty", Mode: to("0750"), UID: to(0), GID: to(0)}},
			[]spec.Mount{bound(pod+"e", "/d")},
			[]EmptyVolume{{pod + "e", 0o750, 0, 0, "", false}},
			0,
		},
		{
			"user alone", "C-VOL-12",
			[]schema.Mount{mountOf("e", "/d")},
			nil,
			[]types.Volume{{Name: "e", Kind: "empty", Mode: to("0755"), UID: to(5), GID: to(0)}},
			[]spec.Mount{bound(pod+"e", "/d")},
			[]EmptyVolume{{pod + "e", 0o755, 5, 0, "", false}},
			0,
		},
		{
			"group alone", "C-VOL-12",
			[]schema.Mount{mountOf("e", "/d")},
			nil,
			[]types.Volume{{Name: "e", Kind: "empty", Mode: to("0755"), UID: to(0), GID: to(6)}},
			[]spec.Mount{bound(pod+"e", "/d")},
			[]EmptyVolume{{pod + "e", 0o755, 0, 6, "", false}},
			0,
		},
		{"mount point filled by name", "C-VOL-14", nil, []types.MountPoint{point("v", "/d")}, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d")}, nil, 0},
		{
			"mount point filled by nothing", "C-VOL-14", nil,
			[]types.MountPoint{point("db", "/d"), point("db", "/e")},
			nil,
			[]spec.Mount{bound(apps+"db-0", "/d"), bound(apps+"db-1", "/e")},
			[]EmptyVolume{{apps + "db-0", 0o755, 0, 0, "", true}, {apps + "db-1", 0o755, 0, 0, "", true}},
			2,
		},
		{
			"unfilled and read-only", "C-VOL-15", nil,
			[]types.MountPoint{{Name: "db", Path: "/d", ReadOnly: true}},
			nil,
			[]spec.Mount{readOnly(bound(apps+"db-0", "/d"))},
			[]EmptyVolume{{apps + "db-0", 0o755, 0, 0, "", true}},
			1,
		},
		{"dots", "C-VOL-17", []schema.Mount{mountOf("v", "/../../d/./e/../f/")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d/f")}, nil, 0},
		{"a relative target", "", []schema.Mount{mountOf("v", "d")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/d")}, nil, 0},
		{"a device", "", []schema.Mount{mountOf("v", "/dev/fuse")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/dev/fuse")}, nil, 0},
		{"shared memory", "", []schema.Mount{mountOf("v", "/dev/shm")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/dev/shm")}, nil, 0},
		{"sysfs", "", []schema.Mount{mountOf("v", "/sys")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/sys")}, nil, 0},
		{"names that begin alike", "C-VOL-05", []schema.Mount{mountOf("v", "/a"), mountOf("v", "/ab")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/a"), bound("/volumes/v", "/ab")}, nil, 0},
		{"odd names", "", []schema.Mount{mountOf("v", "/a:b,c\\d e\n")}, nil, []types.Volume{v}, []spec.Mount{bound("/volumes/v", "/a:b,c\\d e\n")}, nil, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			got, err := planMounts(withMounts(test.mounts, test.points), Config{}, false, test.volumes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Mounts); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.empty, got.Empty); diff != "" {
				t.Error(diff)
			}
			if len(got.Notes) != test.notes {
				t.Errorf("got notes %q, want %d", got.Notes, test.notes)
			}
		})
	}
}

func TestWrongMountsAreRefused(t *testing.T) {
	v := []types.Volume{host("v"), host("w")}
	tests := []struct {
		name, clauses string
		mounts        []schema.Mount
		points        []types.MountPoint
		volumes       []types.Volume
		want          []string
	}{
		{"no such volume", "C-VOL-10", []schema.Mount{mountOf("x", "/d")}, nil, v, []string{`mounts[0].volume: "x"`}},
		{"volume missing", "", []schema.Mount{mountOf("", "/d")}, nil, v, []string{"mounts[0].volume: missing"}},
		{"path missing", "", []schema.Mount{mountOf("v", "")}, nil, v, []string{"mounts[0].path", "missing"}},
		{"mount point without name", "", nil, []types.MountPoint{{Path: "/d"}}, v, []string{"mountPoints[0].name: missing"}},
		{"mount point without path", "", nil, []types.MountPoint{{Name: "p"}}, v, []string{"mountPoints[0].path", "missing"}},
		{"equal", "C-VOL-05", []schema.Mount{mountOf("v", "/d"), mountOf("w", "/d/../d/")}, nil, v, []string{`"v"`, `"w"`, "/d"}},
		{"nested", "C-VOL-05", []schema.Mount{mountOf("v", "/d"), mountOf("w", "/d/e/f")}, nil, v, []string{`target "/d/e/f" of volume "w" lies inside the target "/d" of volume "v"`}},
		{"nested, other order", "C-VOL-05", []schema.Mount{mountOf("v", "/d/e"), mountOf("w", "/d")}, nil, v, []string{`target "/d/e" of volume "v" lies inside the target "/d" of volume "w"`}},
		{"nested in a mount point", "C-VOL-05", []schema.Mount{mountOf("v", "/d/e")}, []types.MountPoint{point("p", "/d")}, v, []string{`target "/d/e" of volume "v" lies inside the target "/d" of volume "p"`}},
		{"the root", "", []schema.Mount{mountOf("v", "/")}, nil, v, []string{`"/"`, "nothing can be mounted over /"}},
		{"the root by dots", "", []schema.Mount{mountOf("v", "/a/..")}, nil, v, []string{`"/a/.."`}},
		{"proc", "", []schema.Mount{mountOf("v", "/proc")}, nil, v, []string{"over /proc"}},
		{"in proc", "", []schema.Mount{mountOf("v", "//proc/self/attr")}, nil, v, []string{"over /proc"}},
		{"dev", "", []schema.Mount{mountOf("e", "/dev/")}, nil, []types.Volume{{Name: "e", Kind: "empty"}}, []string{`"e"`, "only a host volume can be mounted over /dev"}},
		{"terminals", "", []schema.Mount{mountOf("v", "/dev/pts/0")}, nil, v, []string{"over /dev/pts"}},
		{"NUL", "", []schema.Mount{mountOf("v", "/a\x00b")}, nil, v, []string{"NUL"}},
		{"mode not octal", "C-VOL-12", []schema.Mount{mountOf("e", "/d")}, nil, []types.Volume{{Name: "e", Kind: "empty", Mode: to("0789")}}, []string{`"e"`, `"0789"`}},
		{"mode too large", "C-VOL-12", []schema.Mount{mountOf("e", "/d")}, nil, []types.Volume{{Name: "e", Kind: "empty", Mode: to("17777")}}, []string{`"e"`, `"17777"`}},
		{"negative uid", "C-VOL-12", []schema.Mount{mountOf("e", "/d")}, nil, []types.Volume{{Name: "e", Kind: "empty", UID: to(-1)}}, []string{`"e"`, "uid -1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			_, err := planMounts(withMounts(test.mounts, test.points), Config{}, false, test.volumes)
			wantError(t, err, test.want...)
		})
	}
}

// An app's own volume is never taken for another of its name.
func TestAnAppsVolumeIsNotTakenForAnothers(t *testing.T) {
	at := func(source string) *types.Volume { return &types.Volume{Name: "v", Kind: "host", Source: source} }
	for _, test := range []struct {
		name, clauses string
		pod           []types.Volume
		mount         []*types.Volume // one for each app
		want          string
	}{
		{"the same as the pod's", "C-VOL-10", []types.Volume{*at("/a")}, []*types.Volume{at("/a"), nil}, ""},
		{"not the pod's", "C-VOL-10", []types.Volume{*at("/a")}, []*types.Volume{nil, at("/b")}, `app "b": mounts[0].appVolume: another volume with a different source is also named "v"`},
		{"the pod's is empty", "C-VOL-10", []types.Volume{empty("v")}, []*types.Volume{at("/b")}, `app "a": mounts[0]`},
		{"not another app's", "C-VOL-10", nil, []*types.Volume{at("/a"), at("/b")}, `app "b": mounts[0]`},
		{"empty ones of their own", "C-VOL-10", []types.Volume{*at("/a")}, []*types.Volume{to(empty("v")), to(empty("v"))}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			clause.Covers(t, test.clauses)
			pod := &manifest.Pod{PodManifest: &schema.PodManifest{Volumes: test.pod}}
			for i, volume := range test.mount {
				pod.Apps = append(pod.Apps, schema.RuntimeApp{
					Name: types.ACName([]string{"a", "b"}[i]), Mounts: []schema.Mount{{Volume: "v", Path: "/v", AppVolume: volume}},
				})
			}
			err := checkVolumeNames(pod)
			if test.want != "" {
				wantError(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMountsAreLimited(t *testing.T) {
	own := &types.Volume{Kind: "empty"}
	for name, tt := range map[string]struct {
		volumes, mounts, own, points int
		want                         string // "" for none
	}{
		"the most":        {MaxMounts - 1, MaxMounts - 1, 1, 0, ""},
		"volumes":         {MaxMounts + 1, 0, 0, 0, "4097 volumes are more than 4096"},
		"an app's own":    {MaxMounts, 0, 1, 0, "4097 volumes are more than 4096"},
		"mounts":          {0, MaxMounts + 1, 0, 0, `app "a": 4097 mounts and mount points are more than 4096`},
		"points":          {0, 0, 0, MaxMounts + 1, `app "a": 4097 mounts and mount points are more than 4096`},
		"mounts and more": {0, MaxMounts - 1, 1, 1, `app "a": 4097 mounts and mount points are more than 4096`},
	} {
		mounts := make([]schema.Mount, tt.mounts)
		for range tt.own {
			mounts = append(mounts, schema.Mount{AppVolume: own})
		}
		m, err := manifest.Read(strings.NewReader(example(t)))
		if err != nil {
			t.Fatal(err)
		}
		app := m.Pod.Apps[0]
		m.AppImageOrder = map[string][]string{"a": m.AppImageOrder[app.Name.String()]}
		section := *m.Images[app.Image.ID.String()].App
		app.Name, app.Mounts, app.App, section.MountPoints = "a", mounts, &section, make([]types.MountPoint, tt.points)
		m.Pod.Volumes, m.Pod.Apps = make([]types.Volume, tt.volumes), schema.AppList{app}
		if err := CheckMounts(m); tt.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if tt.want != "" {
			wantError(t, err, tt.want)
			_, err = Decide(m, spec.Support{}, nil, nil)
			wantError(t, err, tt.want)
		}
	}
}
