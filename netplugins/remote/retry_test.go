package main

import (
	"strings"
	"testing"
	"time"
)

// loseAnswer makes the driver's connection break in the next call of a method, which the driver carries out, and the
// driver answer the second request with a status and these words.
func (f *fakeDriver) loseAnswer(method, words string, status int) {
	f.set(method, "drop", 200)
	f.called = func(called string) {
		if called == method {
			f.set(method, words, status)
		}
	}
}

// patientRemote is newRemote, but that it tries again.
func (f *fakeDriver) patientRemote(t *testing.T) *remote {
	r := f.newRemote(t)
	r.patience.retries, r.patience.pause = 10*time.Second, 10*time.Millisecond
	return r
}

// A driver that has created the network, but whose answer was lost, refuses to create it again.
func TestNetworkWhoseAnswerWasLostIsDeleted(t *testing.T) {
	f := newDriver(t)
	r, config := f.patientRemote(t), configWith(t, nil)
	f.loseAnswer("CreateNetwork", `{"Err": "network exists"}`, 200)
	err := setup(r, config)
	if got := f.take(); err == nil || got != callsOfSetup+" CreateNetwork DeleteNetwork" || !strings.Contains(err.Error(), "no answer") || !strings.Contains(err.Error(), "network exists") {
		t.Errorf("error %v, calls %s", err, got)
	}
	f.checkEmpty(t, 0)
	f.set("CreateNetwork", "", 0)
	f.called = nil
	f.must(t, setup(r, config), callsOfSetup)
}

func TestEndpointWhoseAnswerWasLostIsUndone(t *testing.T) {
	for method, calls := range map[string]string{
		"CreateEndpoint":              "CreateEndpoint CreateEndpoint DeleteEndpoint",
		"Join":                        "CreateEndpoint Join Join Leave DeleteEndpoint",
		"ProgramExternalConnectivity": callsToExpose + " ProgramExternalConnectivity " + callsOfDel,
	} {
		t.Run(method, func(t *testing.T) {
			f := newDriver(t)
			r, config := f.patientRemote(t), configWith(t, nil)
			f.must(t, setup(r, config), callsOfSetup)
			f.loseAnswer(method, `{"Err": "endpoint exists"}`, 200)
			err := add(r, config, "pod-1")
			if got := f.take(); err == nil || got != calls || !strings.Contains(err.Error(), "no answer") || !strings.Contains(err.Error(), "endpoint exists") {
				t.Errorf("error %v, calls\n%s, want\n%s", err, got, calls)
			}
			f.checkEmpty(t, 1)
		})
	}
}

// A driver that does not know ProgramExternalConnectivity has not carried out the lost request either.
func TestDriverWithoutExternalConnectivityWhoseAnswerWasLost(t *testing.T) {
	f := newDriver(t)
	r, config := f.patientRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.loseAnswer("ProgramExternalConnectivity", "404 page not found", 404)
	f.set("RevokeExternalConnectivity", "404 page not found", 404)
	f.must(t, add(r, config, "pod-1"), callsToExpose+" ProgramExternalConnectivity EndpointOperInfo")
	f.must(t, del(r, config, "pod-1"), callsOfDel)
	f.checkEmpty(t, 1)
}

// A driver that has carried out the lost request does not know the endpoint any more.
func TestEndpointThatIsGoneAfterALostAnswer(t *testing.T) {
	for method, calls := range map[string]string{
		"Leave":          "RevokeExternalConnectivity Leave Leave detach:eth0:veth1 DeleteEndpoint",
		"DeleteEndpoint": callsOfDel + " DeleteEndpoint",
	} {
		t.Run(method, func(t *testing.T) {
			f := newDriver(t)
			r, config := f.patientRemote(t), configWith(t, nil)
			f.must(t, setup(r, config), callsOfSetup)
			f.must(t, add(r, config, "pod-1"), callsOfAdd)
			f.loseAnswer(method, `{"Err": "unknown endpoint"}`, 200)
			f.must(t, del(r, config, "pod-1"), calls)
			f.checkEmpty(t, 1)
		})
	}
}
