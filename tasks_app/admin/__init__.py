"""The pages of tasks_app in the operators' site."""

from tasks_app.admin import pages as pages  # registers them
