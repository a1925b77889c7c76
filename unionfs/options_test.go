package unionfs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/unionfs"
)

func TestLegacyOptions(t *testing.T) {
	want := "lowerdir=0:1:2,upperdir=../upper,workdir=../work,redirect_dir=on,index=on,metacopy=off,xino=auto,volatile"
	if diff := cmp.Diff(want, unionfs.LegacyOptions(3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(unionfs.LegacyOptions(500)); n > 4095 {
		t.Errorf("500 layers need %d bytes, mount(2) takes 4095", n)
	}
}

func TestAUFSOptions(t *testing.T) {
	layers := func(n int) []string {
		l := make([]string, n)
		for i := range l {
			l[i] = fmt.Sprint(i)
		}
		return l
	}
	tests := []struct {
		name   string
		layers []string
		page   int
		want   []string
	}{
		{"one", layers(1), 4096, []string{"br:../upper=rw:0=ro,dirperm1"}},
		{"three", layers(3), 4096, []string{"br:../upper=rw:0=ro:1=ro:2=ro,dirperm1"}},
		{"exactly a page", layers(2), 34, []string{"br:../upper=rw:0=ro:1=ro,dirperm1"}},
		{"one byte less", layers(2), 33, []string{"br:../upper=rw:0=ro,dirperm1", "append:1=ro"}},
		{"appended in order", layers(4), 34, []string{"br:../upper=rw:0=ro:1=ro,dirperm1", "append:2=ro", "append:3=ro"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, unionfs.AUFSOptions("../upper", tt.layers, tt.page)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAUFSOptionsManyBranches(t *testing.T) {
	var all []string
	for i := range 5000 {
		all = append(all, fmt.Sprint(i))
	}
	var branches []string
	for i, step := range unionfs.AUFSOptions("../upper", all, 4096) {
		if len(step) > 4095 {
			t.Errorf("step %d has %d bytes", i, len(step))
		}
		step = strings.TrimSuffix(strings.TrimPrefix(step, "append:"), ",dirperm1")
		for b := range strings.SplitSeq(strings.TrimPrefix(step, "br:../upper=rw:"), ":") {
			branches = append(branches, strings.TrimSuffix(b, "=ro"))
		}
	}
	if diff := cmp.Diff(all, branches); diff != "" {
		t.Errorf("branches (-want +got):\n%s", diff)
	}
}
