package podplan

import (
	"testing"

	"kurma.io/stager/tests/clause"

	"github.com/google/go-cmp/cmp"
)

// Apps' own volumes are distinguished from the pod's and each other's, and
// those that are the same stay one.
func TestAppVolumesHaveNamesOfTheirOwn(t *testing.T) {
	clause.Covers(t, "C-VOL-10")
	document := `{"acKind":"PodManifest","acVersion":"0.8.11",
		"volumes":[{"name":"v","kind":"host","source":"/pod"},{"name":"v-2","kind":"empty"}],
		"apps":[
			{"name":"a","image":{},"mounts":[{"volume":"v","path":"/a","appVolume":{"name":"v","kind":"host","source":"/own"}},
				{"volume":"v","path":"/b","APPVolume":{"Name":"v","kind":"host","source":"/pod","recursive":true,"other":1}}]},
			{"name":"b","image":{},"mounts":[{"volume":"v","path":"/a","appVolume":{"name":"v","kind":"host","source":"/own"}},
				{"volume":"v","path":"/b","appVolume":{"name":"v","kind":"host","source":"/own","readOnly":true}},
				{"volume":"v","path":"/c","appVolume":{"name":"v","kind":"empty"}},
				{"volume":"v","path":"/d"},
				{"volume":"w","path":"/e","appVolume":{"name":"w","kind":"host","source":"/w"}}]}]}`
	pod, err := editPod(document, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, app := range pod.Apps {
		for _, mount := range app.Mounts {
			name := ""
			if mount.AppVolume != nil {
				name = mount.AppVolume.Name.String() + " " + mount.AppVolume.Source
			}
			have = append(have, mount.Volume.String()+": "+name)
		}
	}
	if diff := cmp.Diff([]string{"v: v-3 /own", "v: v /pod", "v: v-3 /own", "v: v-4 /own", "v: v ", "v: ", "w: w /w"}, have); diff != "" {
		t.Error(diff)
	}
}
