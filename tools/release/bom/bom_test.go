package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The bill names the licence of a C library, and its texts are beside the bill.
func TestTheBillHasTheLicencesOfCLibraries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"copyright", "GPL-3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const licence = "GPL-3.0-or-later WITH GCC-exception-3.1"
	o, err := parse([]string{
		"--version", "1", "--modules", dir, "--goroot", dir, "-o", filepath.Join(dir, "bill"), "--licenses", filepath.Join(dir, "out"),
		"--c", "libgcc=12=pkg:deb/debian/libgcc@12?arch%3Damd64=" + licence + "=" + dir + "/copyright:" + dir + "/GPL-3", "program",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.library(o.libraries[0])
	if err != nil {
		t.Fatal(err)
	}
	if c.PackageURL != "pkg:deb/debian/libgcc@12?arch=amd64" || c.Licenses == nil || len(*c.Licenses) != 1 || (*c.Licenses)[0].Expression != licence {
		t.Errorf("component %+v, licences %+v", c, c.Licenses)
	}
	for _, name := range []string{"copyright", "GPL-3"} {
		if _, err := os.Stat(filepath.Join(dir, "out/libgcc@12", name)); err != nil {
			t.Error(err)
		}
	}
}
