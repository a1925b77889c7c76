package server

import "testing"

func TestCgroupParentsOfBothDrivers(t *testing.T) {
	for _, test := range []struct{ parent, driver, want string }{
		{"", driverCgroupfs, defaultParent},
		{"/kubepods/besteffort/pod1", driverCgroupfs, "kubepods/besteffort/pod1"},
		{"kubepods-besteffort-pod1.slice", driverSystemd, "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"},
		{"/kubepods.slice/kubepods-pod1.slice", driverSystemd, "kubepods.slice/kubepods-pod1.slice"},
		{"a.slice", driverCgroupfs, "a.slice"},
	} {
		got, err := cgroupParent(test.parent, test.driver)
		if err != nil || got != test.want {
			t.Errorf("%q, %s: %q, %v, want %q", test.parent, test.driver, got, err, test.want)
		}
	}
	if _, err := cgroupParent("/a/../../b", driverCgroupfs); err == nil {
		t.Error("a parent outside is accepted")
	}
}
