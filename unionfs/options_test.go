package unionfs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/unionfs"
)

func TestLegacyOptionsFitFiveHundredLayers(t *testing.T) {
	want := "lowerdir=0:1:2,upperdir=../upper,workdir=../work,redirect_dir=on,index=on,metacopy=off,xino=auto,volatile"
	if diff := cmp.Diff(want, unionfs.LegacyOptions(3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(unionfs.LegacyOptions(500)); n > 4095 {
		t.Errorf("500 layers need %d bytes, mount(2) takes 4095", n)
	}
}
