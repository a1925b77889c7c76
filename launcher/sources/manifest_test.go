package sources

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A configuration of a few megabytes cannot have so many settings that it takes minutes to compare them.
func TestAConfigurationHasLimits(t *testing.T) {
	for _, n := range []int{maxSettings, maxSettings + 1} {
		labels, volumes := make(map[string]string), make(map[string]struct{})
		var env []string
		for i := range n {
			name := fmt.Sprintf("a%04d", i)
			env, labels[name], volumes["/"+name] = append(env, name), "", struct{}{}
		}
		for what, c := range map[string]v1.Config{"variables": {Env: env}, "labels": {Labels: labels}, "volumes": {Volumes: volumes}} {
			c.Cmd = []string{"/x"}
			_, err := convert(&v1.ConfigFile{Config: c}, "a", "", nil)
			if (err != nil) != (n > maxSettings) || err != nil && !strings.Contains(err.Error(), "has 1001 variables, labels or volumes, more than 1000") {
				t.Errorf("%d %s: %v", n, what, err)
			}
		}
	}
}

// An image may have equal volumes, and volumes inside others. The stager mounts only the outer ones.
func TestAVolumeInAnotherIsNoMountPoint(t *testing.T) {
	volumes := make(map[string]struct{})
	for _, target := range []string{"data", "/data/", "/data/logs", "/data/logs/old", "/data-x", "/data/../var", "/", "/lib/a"} {
		volumes[target] = struct{}{}
	}
	want := []mountPoint{{"data", "/data"}, {"data-x", "/data-x"}, {"lib-a", "/lib/a"}, {"var", "/var"}}
	if diff := cmp.Diff(want, mountPoints(volumes)); diff != "" {
		t.Error(diff)
	}
}
