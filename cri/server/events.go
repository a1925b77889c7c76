package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// notice is that something has happened to a container or a sandbox.
type notice struct {
	kind        runtimeapi.ContainerEventType
	id, sandbox string
	when        time.Time
}

func event(kind runtimeapi.ContainerEventType, id, sandbox string) notice {
	return notice{kind, id, sandbox, time.Now()}
}

// subscribers are the streams of events that are open.
type subscribers struct {
	mu  sync.Mutex
	all map[chan notice]bool
}

// backlog is how many events a subscriber may be behind.
const backlog = 1000

func (s *subscribers) add() chan notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[chan notice]bool)
	}
	c := make(chan notice, backlog)
	s.all[c] = true
	return c
}

func (s *subscribers) remove(c chan notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[c] {
		delete(s.all, c)
		close(c)
	}
}

func (s *subscribers) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// send sends to every subscriber. One that is too far behind is ended: kubelet lists everything and begins again.
func (s *subscribers) send(n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		select {
		case c <- n:
		default:
			delete(s.all, c)
			close(c)
		}
	}
}

// GetContainerEvents implements the CRI.
func (s *Server) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	notices := s.events.add()
	defer s.events.remove(notices)
	s.lookForEnds() // a container that starts from now on may end before the next look
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-s.ending.Done():
			return nil
		case n, ok := <-notices:
			if !ok {
				return errors.New("events were not read in time")
			}
			if err := stream.Send(s.describeNotice(n)); err != nil {
				return err
			}
		}
	}
}

// describeNotice adds the statuses as they are now; a sandbox that was removed has none.
func (s *Server) describeNotice(n notice) *runtimeapi.ContainerEventResponse {
	response := &runtimeapi.ContainerEventResponse{
		ContainerId: n.id, ContainerEventType: n.kind, CreatedAt: n.when.UnixNano(),
	}
	sandbox, err := s.records.Sandbox(n.sandbox)
	if err != nil {
		return response
	}
	response.PodSandboxStatus = s.sandboxStatus(sandbox)
	if response.ContainersStatuses, err = s.statusesOf(sandbox.ID); err != nil {
		slog.Warn("event without statuses", "sandbox", sandbox.ID, "error", err)
	}
	return response
}

// endsInterval is how often the server looks for containers that have ended, while there is a subscriber.
const endsInterval = 200 * time.Millisecond

// watch sends an event for each container that ends, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	look := time.NewTicker(endsInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			s.lookForEnds()
		}
	}
}

// ends are the containers that had ended when the server looked last; nil while there is no subscriber.
type ends struct {
	mu    sync.Mutex
	known map[string]bool
}

// lookForEnds sends an event for each container that has ended since the last look. The first look of a subscriber only
// finds those that had ended before.
func (s *Server) lookForEnds() {
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	if !s.events.any() {
		s.ends.known = nil
		return
	}
	ended, err := s.listContainers(&runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
	})
	if err != nil {
		slog.Warn("containers that have ended are not found", "error", err)
		return
	}
	now := make(map[string]bool)
	for _, c := range ended {
		now[c.Id] = true
		if s.ends.known != nil && !s.ends.known[c.Id] {
			s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.Id, c.PodSandboxId))
		}
	}
	s.ends.known = now
}
