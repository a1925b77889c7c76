package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/spec"
)

// stagerConfig's volumeFlags are for host volumes alone, and not for those of a privileged app, which could take the
// flags away.
func TestVolumeFlagsAreThoseOfHostVolumes(t *testing.T) {
	for name, test := range map[string]struct {
		flags      []VolumeFlag
		privileged bool
		noSuid     bool
		noDev      bool
	}{
		"none":       {},
		"both":       {[]VolumeFlag{FlagNoDev, FlagNoSuid}, false, true, true},
		"one":        {[]VolumeFlag{FlagNoSuid}, false, true, false},
		"privileged": {[]VolumeFlag{FlagNoDev, FlagNoSuid}, true, false, false},
	} {
		c := defaultConfig()
		c.VolumeFlags = test.flags
		app := withMounts([]schema.Mount{mountOf("h", "/host"), mountOf("e", "/empty")}, nil)
		if test.privileged {
			app.Isolators = listed("os/linux/privileged", "true")
		}
		got, err := (Rows{}).planApp(app, c, able, podIsolators{}, []types.Volume{host("h"), empty("e")})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Spec.Mounts {
			own := m.Target == "/host"
			if m.NoSuid != (own && test.noSuid) || m.NoDev != (own && test.noDev) {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// A folder of the daemon is an empty volume only if the daemon says that it has made the folder for the pod, and never
// the volume of one mount.
func TestFoldersOfTheDaemonAreTheNamedVolumes(t *testing.T) {
	empty := func(name types.ACName) types.Volume { return types.Volume{Name: name, Kind: "empty"} }
	own := empty("b")
	app := withMounts([]schema.Mount{mountOf("a", "/a"), mountOf("b", "/b"), {Volume: "b", Path: "/own", AppVolume: &own}}, nil)
	for want, named := range map[string][]string{"||": nil, "|/volumes/b|": {"b", "c"}} {
		p, err := planMounts(app, Config{PodVolumes: named}, false, []types.Volume{empty("a"), empty("b")})
		if err != nil {
			t.Fatal(err)
		}
		var given []string
		for _, e := range p.Empty {
			given = append(given, e.Given)
		}
		if got := strings.Join(given, "|"); got != want {
			t.Errorf("%q: %s, want %s", named, got, want)
		}
	}
}

func TestDevicesAreTheNamedVolumes(t *testing.T) {
	for want, allowed := range map[string][]string{"true true": nil, "false false": {}, "false true": {"b"}} {
		app := withMounts([]schema.Mount{mountOf("a", "/a"), mountOf("b", "/b")}, nil)
		p, err := planMounts(app, Config{DeviceVolumes: allowed}, false, []types.Volume{host("a"), host("b")})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Sources[0].MayBeDevice, p.Sources[1].MayBeDevice); got != want {
			t.Errorf("%#v: %s, want %s", allowed, got, want)
		}
	}
}

// stagerConfig's volumePropagation is for the named host volume alone. A mount that goes out to the host is a privilege.
func TestPropagationIsThatOfTheNamedVolume(t *testing.T) {
	app := withMounts([]schema.Mount{mountOf("a", "/a"), mountOf("b", "/b")}, nil)
	c := Config{VolumePropagation: map[string]spec.Propagation{"b": spec.BothWays}}
	volumes := []types.Volume{host("a"), host("b")}
	p, err := planMounts(app, c, true, volumes)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := p.Mounts[0].Propagation, p.Mounts[1].Propagation; a != "" || b != spec.BothWays {
		t.Errorf("%q, %q", a, b)
	}
	_, err = planMounts(app, c, false, volumes)
	wantError(t, err, `volume "b": stagerConfig.volumePropagation "shared" is for apps with os/linux/privileged`)
}
