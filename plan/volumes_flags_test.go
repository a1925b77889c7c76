package plan

import (
	"fmt"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
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
		got, err := planApp(app, c, able, podIsolators{}, []types.Volume{host("h"), empty("e")})
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

func TestDevicesAreTheNamedVolumes(t *testing.T) {
	for want, allowed := range map[string][]string{"true true": nil, "false false": {}, "false true": {"b"}} {
		p := mountPlan{Sources: []Source{{Volume: "a"}, {Volume: "b"}}}
		p.allowDevices(allowed)
		if got := fmt.Sprint(p.Sources[0].MayBeDevice, p.Sources[1].MayBeDevice); got != want {
			t.Errorf("%#v: %s, want %s", allowed, got, want)
		}
	}
}
