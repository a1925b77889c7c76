package server

import (
	"log/slog"
	"sync"
	"time"

	"kurma.io/stager/launcher/pods"
)

// attendAgain is the pause after a take-down that has failed, as on a full disk.
const attendAgain = 10 * time.Second

// attend takes a container's pod down when it has ended, unless this server ends before. It adopts the pod if a is nil.
func (s *Server) attend(a *pods.Attendant, pod *pods.Pod) {
	for !s.attendOnce(a, pod) {
		a = nil
		select {
		case <-s.ending.Done():
			return
		case <-time.After(attendAgain):
		}
	}
}

// attendOnce is attend until a take-down fails; false then.
func (s *Server) attendOnce(a *pods.Attendant, pod *pods.Pod) (done bool) {
	var err error
	if a == nil {
		if a, err = s.pods.Adopt(s.ending, pod); err == nil && a == nil {
			return true
		}
	}
	if err == nil {
		err = a.Attend(s.ending)
	}
	if err == nil || s.ending.Err() != nil {
		return true
	}
	slog.Error("pod of a container is not taken down", "container", pod.Plan.Name, "error", oneLine(err))
	return false
}

// maxTakeDowns is how many pods are taken down at a time when the server starts, as after a start of the machine.
const maxTakeDowns = 8

// attendAll attends the containers of an earlier server. It returns when it has tried to take down the pods of those
// that have ended since, or recoverTime is over.
func (s *Server) attendAll() {
	all, err := s.pods.List()
	if err != nil {
		slog.Error("containers of an earlier server are not attended yet", "error", oneLine(err))
		time.AfterFunc(attendAgain, func() {
			if s.ending.Err() == nil {
				s.attendAll()
			}
		})
		return
	}
	turns := make(chan struct{}, maxTakeDowns)
	var ended sync.WaitGroup
	for _, pod := range all {
		if !pod.Ended() {
			go s.attend(nil, pod)
			continue
		}
		ended.Go(func() {
			turns <- struct{}{}
			done := s.attendOnce(nil, pod)
			<-turns
			if !done {
				time.AfterFunc(attendAgain, func() { s.attend(nil, pod) })
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended.Wait()
	}()
	select {
	case <-done:
	case <-time.After(recoverTime):
	}
}
