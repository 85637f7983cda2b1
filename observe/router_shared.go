package observe

import "signalbox/router/kv"

// SharedFailed counts a failure to hear what the fleet's shared cache holds.
func (r *Router) SharedFailed() { r.routers.sharedErrors.Inc() }

// decidedShared reports what the shared cache held for a placement.
func (r *Router) decidedShared(s *kv.SharedSteps) {
	if !s.Asked {
		return
	}
	m := r.routers
	m.sharedQuery.Observe(milliseconds(s.Query))
	values := []string{r.labels.Namespace, r.labels.Component, m.routerID, m.processID}
	if s.Of > 0 {
		m.sharedHitRate.WithLabelValues(values...).Observe(float64(s.Blocks) / float64(s.Of))
	}
	m.sharedBeyond.WithLabelValues(values...).Observe(float64(s.Beyond))
}
